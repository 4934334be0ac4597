"""Common code of Kinema's five services: the wire contract, the cluster model, the runtime."""
