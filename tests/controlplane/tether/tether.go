// Package tether ends a program together with the one that has started it.
package tether

import (
	"io"
	"os"
)

// Hold ends the process as soon as its standard input is closed: its starter wants that, or is dead of whatever cause.
// Without the variable in the environment, the program is on its own, as when it is started by hand.
func Hold() {
	if os.Getenv("TETHERED") == "" {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
}
