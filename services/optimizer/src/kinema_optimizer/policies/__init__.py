"""Policies of neighboring tools as pure functions of a cluster: baselines to compare plans with.

Everything counts requests, never usage. Each policy is run to its fixpoint in one go: waiting times are taken as over.
What Kinema holds (`kinema_core.model.mobility`) the policies hold too, besides what their own rules block: so their
plans obey the same rules and can be compared.
"""
