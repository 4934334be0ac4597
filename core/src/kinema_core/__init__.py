"""What Kinema's five services share: the wire contract, the cluster model, the runtime."""
