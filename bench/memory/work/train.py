# Trains a small network on images of CIFAR-10's shape: train.py MIB. It fills MIB of memory with images and takes steps of 128 of them
# in a random order, with 4 threads; prints a checksum and the seconds that it took, filling included.
import hashlib, sys, time
start = time.monotonic()
import torch

torch.set_num_threads(4)
torch.manual_seed(1)
count = (int(sys.argv[1]) << 20) // (3 * 32 * 32 * 4)
images = torch.empty(count, 3, 32, 32)
for i in range(0, count, 1000):
    images[i:i + 1000].normal_()
labels = torch.randint(0, 10, (count,))
net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
    torch.nn.Conv2d(32, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
    torch.nn.Flatten(), torch.nn.Linear(64 * 8 * 8, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
order = torch.randperm(count)
loss = 0.0
for step in range(60):
    batch = order[[(step * 128 + i) % count for i in range(128)]]
    optimizer.zero_grad()
    cost = torch.nn.functional.cross_entropy(net(images[batch]), labels[batch])
    cost.backward()
    optimizer.step()
    loss += float(cost)
print(hashlib.sha256(repr(loss).encode()).hexdigest()[:16], "%.6f" % (time.monotonic() - start))
