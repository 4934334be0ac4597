"""Column generation: fillings of single nodes, priced by knapsacks. Entry point: `generation.ColumnGeneration`."""
