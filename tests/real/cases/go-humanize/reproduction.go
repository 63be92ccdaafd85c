package humanize

import "testing"

func TestZerosOfWholeNumbersAreKept(t *testing.T) {
	testList{
		{"100, 0", FtoaWithDigits(100, 0), "100"},
		{"120000 W, 0", SIWithDigits(120000, 0, "W"), "120 kW"},
		{"100.5, 0", FtoaWithDigits(100.5, 0), "100"},
	}.validate(t)
}
