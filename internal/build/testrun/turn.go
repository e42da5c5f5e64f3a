package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// turnVariable has which part of the longest steps runs, such as 2/3: the second of three. The
// parts together are everything. Continuous integration takes them by turns, so that a landing
// waits for a third of what repeats on real parts what the other steps prove.
const turnVariable = "TRUEUP_TEST_TURN"

// A turn is one of several parts; zero is everything.
type turn struct{ number, of int }

// thisTurn returns the turn that the environment asks for.
func thisTurn() (turn, error) {
	text := os.Getenv(turnVariable)
	if text == "" {
		return turn{}, nil
	}
	first, second, _ := strings.Cut(text, "/")
	number, err := strconv.Atoi(first)
	of, err2 := strconv.Atoi(second)
	if err != nil || err2 != nil || number < 1 || number > of {
		return turn{}, fmt.Errorf(
			"%w: %s is %q, must be the number of a part and how many there are, such as 2/3", errMachine, turnVariable, text)
	}
	return turn{number, of}, nil
}

// ofTurn returns each third of names if there are three turns, and notes what is left to the others.
func (r *runner) ofTurn(what string, all []string) (part []string) {
	if r.turn.of == 0 {
		return all
	}
	for i := r.turn.number - 1; i < len(all); i += r.turn.of {
		part = append(part, all[i])
	}
	if left := len(all) - len(part); left > 0 {
		r.turned = append(r.turned, fmt.Sprintf("%d of %d %s", left, len(all), what))
	}
	return part
}
