// Package figures keeps what was measured and shows it: statistics, a table,
// bars for a terminal, an SVG, and one flat JSON object per row.
//
// # Model
//
// A Row is one peer doing one Work. It collects a Sample per round. Its figure is
// the median over rounds, and its ratio to wherry the median of the ratios within each round:
// the two were taken seconds apart, so that what the machine does meanwhile
// falls on both.
package figures
