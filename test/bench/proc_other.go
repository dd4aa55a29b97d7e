//go:build !linux

package main

import (
	"errors"
	"os"
	"os/exec"
	"time"
)

var errNoProc = errors.New("the benchmark reads /proc and so needs Linux")

func cpuOf(int) (time.Duration, error)   { return 0, errNoProc }
func peakOf(int) (int64, error)          { return 0, errNoProc }
func peakOfEnded(*os.ProcessState) int64 { return 0 }
func busy() (time.Duration, error)       { return 0, errNoProc }
func load1() float64                     { return 0 }
func cpuModel() string                   { return "" }
func bind(*exec.Cmd)                     {}
