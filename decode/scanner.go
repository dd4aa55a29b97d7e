package decode

import "time"

// calendarDay is a day as the server prints it.
type calendarDay struct {
	year, month, day int
	bc               bool
}

// goYear counts 1 BC as 0.
func (d calendarDay) goYear() int {
	if d.bc {
		return 1 - d.year
	}
	return d.year
}

// valid says whether the calendar has the day.
func (d calendarDay) valid() bool {
	if d.year < 1 || d.month < 1 || d.month > 12 || d.day < 1 {
		return false
	}
	t := time.Date(d.goYear(), time.Month(d.month), d.day, 0, 0, 0, 0, time.UTC)
	return t.Day() == d.day
}

// scanner reads an ISO date or timestamp from the left. After its first
// failure it reads no more, and done is false.
type scanner struct {
	text   []byte
	at     int
	failed bool
}

// done says whether everything was read, and read well.
func (p *scanner) done() bool { return !p.failed && p.at == len(p.text) }

func (p *scanner) peek() byte {
	if p.failed || p.at == len(p.text) {
		return 0
	}
	return p.text[p.at]
}

func (p *scanner) want(c byte) {
	if p.peek() != c {
		p.failed = true
		return
	}
	p.at++
}

// number reads between least and most digits, as many as there are.
func (p *scanner) number(least, most int) (value, digits int) {
	for digits < most {
		c := p.peek()
		if c < '0' || c > '9' {
			break
		}
		value = value*10 + int(c-'0')
		digits++
		p.at++
	}
	if digits < least {
		p.failed = true
	}
	return value, digits
}

// two reads a number of two digits that is at most limit.
func (p *scanner) two(limit int) int {
	n, _ := p.number(2, 2)
	if n > limit {
		p.failed = true
	}
	return n
}

// day reads year, month and day. A date's year has up to 7 digits.
func (p *scanner) day() calendarDay {
	var d calendarDay
	d.year, _ = p.number(4, 7)
	p.want('-')
	d.month = p.two(12)
	p.want('-')
	d.day = p.two(31)
	return d
}

// clock reads 15:04:05 as seconds.
func (p *scanner) clock() int {
	hour := p.two(23)
	p.want(':')
	minute := p.two(59)
	p.want(':')
	return (hour*60+minute)*60 + p.two(59)
}

// fraction reads the microseconds, if there are any, as nanoseconds.
func (p *scanner) fraction() int {
	if p.peek() != '.' {
		return 0
	}
	p.at++
	n, digits := p.number(1, 6)
	for ; digits < 9; digits++ {
		n *= 10
	}
	return n
}

// zone reads +05, +05:30 or +05:30:15, if there is one, as seconds east.
func (p *scanner) zone() int {
	sign := 1
	switch p.peek() {
	case '+':
	case '-':
		sign = -1
	default:
		return 0
	}
	p.at++
	seconds := p.two(15) * 60 * 60
	for unit := 60; unit > 0 && p.peek() == ':'; unit /= 60 {
		p.at++
		seconds += p.two(59) * unit
	}
	return sign * seconds
}

// bc reads the mark of the years before Christ.
func (p *scanner) bc() bool {
	if p.peek() != ' ' {
		return false
	}
	for _, c := range []byte(" BC") {
		p.want(c)
	}
	return true
}
