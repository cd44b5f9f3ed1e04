// Package bench measures wherry on the machine it runs on.
//
// Every benchmark runs in processes of their own: one client, pinned to CPU 0,
// and servers, all pinned to CPU 1, with one wake-up policy for all. Both sides of a comparison are
// interleaved in one run, and medians are reported: the machine is shared and noisy, so ratios say
// more than figures. A result is one flat JSON object with the circumstances in it.
package bench
