"""Leadership: the fence that lets only the holder of the lease write. Entry point: `fence.Fence`."""
