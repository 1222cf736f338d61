// Prints what an empty transaction takes from Go, in nanoseconds: the fastest of some rounds.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"txos"
)

func main() {
	rounds, count := number(1), number(2)
	nothing, durable := func() error { return nil }, txos.Durable(false)
	best := time.Duration(1<<63 - 1)
	for round := 0; round < rounds; round++ {
		start := time.Now()
		for i := 0; i < count; i++ {
			if err := txos.Do(context.Background(), nothing, durable); err != nil {
				log.Fatal(err)
			}
		}
		if each := time.Since(start) / time.Duration(count); each < best {
			best = each
		}
	}
	fmt.Println(best.Nanoseconds())
}

func number(i int) int {
	n, err := strconv.Atoi(os.Args[i])
	if err != nil {
		log.Fatal(err)
	}
	return n
}
