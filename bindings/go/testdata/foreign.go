// A database of others and a file, changed in one transaction: both, or none of the two.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
	"txos"
)

func change(name string) error {
	db, err := bolt.Open("people.db", 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		return err
	}
	defer db.Close()
	for i := 0; i < 50; i++ {
		err = db.Update(func(tx *bolt.Tx) error {
			people, err := tx.CreateBucketIfNotExists([]byte("people"))
			if err != nil {
				return err
			}
			return people.Put([]byte(fmt.Sprint(name, i)), make([]byte, 1000))
		})
		if err != nil {
			return err
		}
	}
	return os.WriteFile("last", []byte(name), 0o644)
}

func show(how string) {
	count := 0
	if db, err := bolt.Open("people.db", 0o600, &bolt.Options{Timeout: time.Second, ReadOnly: true}); err == nil {
		err = db.View(func(tx *bolt.Tx) error {
			if people := tx.Bucket([]byte("people")); people != nil {
				count = people.Stats().KeyN
			}
			for err := range tx.Check() {
				return err
			}
			return nil
		})
		if err != nil {
			panic(err)
		}
		db.Close()
	}
	last, _ := os.ReadFile("last")
	fmt.Printf("%s: %d %s\n", how, count, last)
}

func main() {
	no := errors.New("no good")
	for _, name := range []string{"Ada", "Bob"} {
		err := txos.Do(context.Background(), func() error {
			if err := change("not " + name); err != nil {
				return err
			}
			return no
		}, txos.Durable(false))
		if err != no {
			panic(err)
		}
		show("aborted")
		if err := txos.Do(context.Background(), func() error { return change(name) }, txos.Durable(false)); err != nil {
			panic(err)
		}
		show("committed")
	}
}
