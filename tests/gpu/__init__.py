"""Training on a GPU beside DistributedDataParallel; `make test-gpu` runs it where there is one."""
