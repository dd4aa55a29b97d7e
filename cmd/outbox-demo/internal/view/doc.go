// Package view shows the running demo: a picture that is redrawn in place on a
// terminal, one line a second elsewhere.
//
// It refuses to measure and to decide: everything it shows is in the Frame.
//
// Laws:
//
//   - Lines is a function of the frame and the shape of the screen: no clock,
//     no I/O. No line is wider than the screen, no picture higher.
//   - A picture is one write, so that nothing flickers.
//   - Without colour nothing is lost: every colour repeats a word or a sign.
//
// Start with Frame, then Lines, then Screen.
package view
