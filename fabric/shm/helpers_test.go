package shm

// helpers are what the test binary can be run again as.
func helpers() map[string]func(args []string) error {
	return map[string]func(args []string) error{
		"echo": helperEcho,
	}
}
