package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	abci "github.com/cometbft/cometbft/abci/types"
)

// requestMax is the most bytes of a request.
const requestMax = 200

// application is between CometBFT and the executor. A transaction of CometBFT is a word of the client's choice, which
// makes it different from all others, a blank, and the request.
type application struct {
	abci.BaseApplication
	mutex    sync.Mutex
	process  *exec.Cmd
	commands io.WriteCloser
	answers  *bufio.Reader
}

// start starts the executor of a graph. It ends with this process.
func start(dir, executor, threads string) (*application, error) {
	process := exec.Command(executor, "serve", dir, threads)
	process.Stderr = os.Stderr
	commands, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	answers, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	return &application{process: process, commands: commands, answers: bufio.NewReader(answers)}, nil
}

func (a *application) stop() {
	a.commands.Close()
	a.process.Wait()
}

// ask sends lines and reads as many.
func (a *application) ask(answers int, lines ...string) []string {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	_, err := io.WriteString(a.commands, strings.Join(lines, "\n")+"\n")
	read := make([]string, answers)
	for i := range read {
		if err == nil {
			read[i], err = a.answers.ReadString('\n')
			read[i] = strings.TrimSuffix(read[i], "\n")
		}
	}
	if err != nil {
		// It has said why. A replica that can't execute must not go on: the others do.
		fmt.Fprintln(os.Stderr, "replica: the executor has ended:", err)
		os.Exit(1)
	}
	return read
}

// request is what the executor gets of a transaction. What is no text is a request that it refuses.
func request(tx []byte) string {
	if len(tx) > requestMax {
		return "too long"
	}
	for _, b := range tx {
		if b < ' ' || b > '~' {
			return "no text"
		}
	}
	_, request, _ := strings.Cut(string(tx), " ")
	return request
}

// answer divides "ok ANSWER" and "no WHY".
func answer(line string) (uint32, string) {
	word, text, _ := strings.Cut(line, " ")
	if word == "ok" {
		return 0, text
	}
	return 1, text
}

func (a *application) Info(context.Context, *abci.RequestInfo) (*abci.ResponseInfo, error) {
	height, hash, _ := strings.Cut(a.ask(1, "info")[0], " ")
	if height == "0" {
		// Nothing, or the graph of the genesis: CometBFT has it made (again).
		return &abci.ResponseInfo{}, nil
	}
	number, err := strconv.ParseInt(height, 10, 64)
	if err != nil {
		return nil, err
	}
	bytes, err := hex.DecodeString(hash)
	return &abci.ResponseInfo{LastBlockHeight: number, LastBlockAppHash: bytes}, err
}

func (a *application) InitChain(_ context.Context, r *abci.RequestInitChain) (*abci.ResponseInitChain, error) {
	var state genesis
	if err := json.Unmarshal(r.AppStateBytes, &state); err != nil {
		return nil, fmt.Errorf("the application's state in the genesis: %w", err)
	}
	if strings.ContainsAny(state.Kind+state.Seed, " \n") {
		return nil, errors.New("the application's state in the genesis: blanks")
	}
	hash, err := hex.DecodeString(a.ask(1, "make "+state.Kind+" "+state.Seed)[0])
	return &abci.ResponseInitChain{AppHash: hash}, err
}

func (a *application) CheckTx(_ context.Context, r *abci.RequestCheckTx) (*abci.ResponseCheckTx, error) {
	code, why := answer(a.ask(1, "check "+request(r.Tx))[0])
	return &abci.ResponseCheckTx{Code: code, Log: why}, nil
}

func (a *application) FinalizeBlock(_ context.Context, r *abci.RequestFinalizeBlock) (*abci.ResponseFinalizeBlock, error) {
	lines := []string{"block " + strconv.Itoa(len(r.Txs))}
	for _, tx := range r.Txs {
		lines = append(lines, request(tx))
	}
	answers := a.ask(len(r.Txs)+1, lines...)
	results := make([]*abci.ExecTxResult, len(r.Txs))
	for i := range results {
		code, text := answer(answers[i])
		results[i] = &abci.ExecTxResult{Code: code, Data: []byte(text)}
	}
	hash, err := hex.DecodeString(answers[len(r.Txs)])
	return &abci.ResponseFinalizeBlock{TxResults: results, AppHash: hash}, err
}

func (a *application) Commit(context.Context, *abci.RequestCommit) (*abci.ResponseCommit, error) {
	a.ask(1, "commit")
	return &abci.ResponseCommit{}, nil
}
