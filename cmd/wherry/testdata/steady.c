// A program that goes on for as long as it is told to. Each line of its input is a round: it fills new memory of its own and all that it
// maps of a share, reads both back, and says so.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

static int holds(uint64_t *p, size_t n, uint64_t round) {
	for (size_t i = 0; i < n; i++)
		p[i] = i * 0x9e3779b97f4a7c15 + round;
	for (size_t i = 0; i < n; i++)
		if (p[i] != i * 0x9e3779b97f4a7c15 + round)
			return 0;
	return 1;
}

int main(int argc, char **argv) {
	struct stat st;
	int fd = argc == 2 ? open(argv[1], O_RDWR) : -1;
	if (fd < 0 || fstat(fd, &st) != 0)
		return perror("open"), 1;
	uint64_t *shared = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shared == MAP_FAILED)
		return perror("mmap"), 1;
	char line[8];
	for (uint64_t round = 1; fgets(line, sizeof line, stdin); round++) {
		size_t own = round * (16 << 20); // a room more each time
		uint64_t *p = malloc(own);
		if (p == NULL)
			return perror("malloc"), 1;
		if (!holds(p, own / 8, round) || !holds(shared, st.st_size / 8, round))
			return puts("other bytes"), 1;
		free(p);
		printf("round %lu\n", (unsigned long)round);
		fflush(stdout);
	}
	return puts("ended"), 0;
}
