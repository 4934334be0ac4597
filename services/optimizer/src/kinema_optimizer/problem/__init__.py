"""The placement instance in integers: classes of pods, admission, room, reduced rules and solutions."""
