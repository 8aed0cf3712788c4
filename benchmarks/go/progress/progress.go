// Reports of operators: lines of JSON in the file of $BENCH_PROGRESS.
package progress

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

// How many objects were handled in each stage, and how long after they were changed.
type Progress struct {
	mutex   sync.Mutex
	path    string
	total   int
	counts  map[string]int
	samples []float64
}

// Reads $BENCH_PROGRESS and $BENCH_TOTAL.
func New() *Progress {
	total, err := strconv.Atoi(os.Getenv("BENCH_TOTAL"))
	ExitOn(err)
	return &Progress{path: os.Getenv("BENCH_PROGRESS"), total: total, counts: map[string]int{}}
}

// Ends the program with the error, if there is any.
func ExitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Counts one more; tells when all are counted, once, twice, and so on.
func (p *Progress) Add(stage string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.counts[stage]++
	if p.counts[stage]%p.total == 0 {
		p.Tell(stage, p.counts[stage])
	}
}

// Remembers how long ago a change was sent, in seconds.
func (p *Progress) Sample(sent float64) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.samples = append(p.samples, float64(time.Now().UnixNano())/1e9-sent)
}

func (p *Progress) Tell(name string, value any) {
	line, err := json.Marshal(map[string]any{name: value})
	ExitOn(err)
	file, err := os.OpenFile(p.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	ExitOn(err)
	defer file.Close()
	fmt.Fprintln(file, string(line))
}

// Tells all samples, and how many times something was done in all.
func (p *Progress) TellAll(stages map[string]string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for stage, name := range stages {
		p.Tell(name, p.counts[stage])
	}
	p.Tell("samples", p.samples)
}
