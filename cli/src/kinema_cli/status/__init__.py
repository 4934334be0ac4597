"""The commands `kinema status` and `kinema plans`: the pipeline's state by its streams."""
