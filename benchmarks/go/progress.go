package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// How many objects were handled in each stage, and how long after they were changed.
type progress struct {
	mutex   sync.Mutex
	path    string
	total   int
	counts  map[string]int
	samples []float64
}

// Counts one more; tells when all are counted, once, twice, and so on.
func (p *progress) add(stage string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.counts[stage]++
	if p.counts[stage]%p.total == 0 {
		p.tell(stage, p.counts[stage])
	}
}

// Remembers how long ago a change was sent, in seconds.
func (p *progress) sample(sent float64) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.samples = append(p.samples, float64(time.Now().UnixNano())/1e9-sent)
}

func (p *progress) tell(name string, value any) {
	line, err := json.Marshal(map[string]any{name: value})
	exitOn(err)
	file, err := os.OpenFile(p.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	exitOn(err)
	defer file.Close()
	fmt.Fprintln(file, string(line))
}
