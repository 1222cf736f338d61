// Command replica is one of the replicas of the graph service: a node of CometBFT, whose application hands each block to an
// executor, a process of its own, and answers what that answers.
//
//	replica init DIR REPLICAS PORT KIND SEED   writes DIR/0, DIR/1, … for replicas on this machine: keys, genesis,
//	                                           configuration. Replica n listens on PORT + 2n and PORT + 2n + 1 of localhost
//	replica run DIR/n EXECUTOR THREADS         runs one, until SIGTERM
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cometbft/cometbft/config"
	"github.com/cometbft/cometbft/libs/log"
	"github.com/cometbft/cometbft/node"
	"github.com/cometbft/cometbft/p2p"
	"github.com/cometbft/cometbft/privval"
	"github.com/cometbft/cometbft/proxy"
	"github.com/cometbft/cometbft/types"
)

const usage = "usage: replica init DIR REPLICAS PORT KIND SEED\n       replica run DIR/n EXECUTOR THREADS"

// genesis is the graph that all replicas begin with.
type genesis struct {
	Kind string `json:"kind"`
	Seed string `json:"seed"`
}

func main() {
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 6 && args[0] == "init":
		err = initialize(args[1], args[2], args[3], genesis{Kind: args[4], Seed: args[5]})
	case len(args) == 4 && args[0] == "run":
		err = run(args[1], args[2], args[3])
	default:
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "replica:", err)
		os.Exit(1)
	}
}

// configuration is that of replica n: on localhost only, and fast, since there is no way between the replicas.
func configuration(home string, n, port int) *config.Config {
	c := config.DefaultConfig()
	c.SetRoot(home)
	c.Moniker = strconv.Itoa(n)
	c.P2P.ListenAddress = fmt.Sprintf("tcp://127.0.0.1:%d", port+2*n)
	c.RPC.ListenAddress = fmt.Sprintf("tcp://127.0.0.1:%d", port+2*n+1)
	c.RPC.TimeoutBroadcastTxCommit = 60 * time.Second
	c.P2P.AllowDuplicateIP = true
	c.P2P.AddrBookStrict = false
	c.P2P.PexReactor = false
	c.Consensus.TimeoutPropose = time.Second
	c.Consensus.TimeoutCommit = 50 * time.Millisecond
	c.Consensus.PeerGossipSleepDuration = 10 * time.Millisecond
	c.Consensus.CreateEmptyBlocks = false
	c.Mempool.Size = 50_000
	return c
}

func initialize(dir, replicas, port string, state genesis) error {
	count, err := strconv.Atoi(replicas)
	if err != nil || count < 1 || count > 100 {
		return fmt.Errorf("%s: a number of replicas was expected", replicas)
	}
	first, err := strconv.Atoi(port)
	if err != nil || first < 1024 || first+2*count > 65535 {
		return fmt.Errorf("%s: a port was expected", port)
	}
	app, err := json.Marshal(state)
	if err != nil {
		return err
	}
	doc := types.GenesisDoc{
		ChainID:         "graph",
		GenesisTime:     time.Now().UTC(),
		ConsensusParams: types.DefaultConsensusParams(),
		AppState:        app,
	}
	configs := make([]*config.Config, count)
	peers := make([]string, count)
	for n := range configs {
		c := configuration(filepath.Join(dir, strconv.Itoa(n)), n, first)
		configs[n] = c
		config.EnsureRoot(c.RootDir)
		validator := privval.LoadOrGenFilePV(c.PrivValidatorKeyFile(), c.PrivValidatorStateFile())
		key, err := validator.GetPubKey()
		if err != nil {
			return err
		}
		doc.Validators = append(doc.Validators, types.GenesisValidator{Address: key.Address(), PubKey: key, Power: 1})
		id, err := p2p.LoadOrGenNodeKey(c.NodeKeyFile())
		if err != nil {
			return err
		}
		peers[n] = p2p.IDAddressString(id.ID(), strings.TrimPrefix(c.P2P.ListenAddress, "tcp://"))
	}
	for n, c := range configs {
		if err := doc.SaveAs(c.GenesisFile()); err != nil {
			return err
		}
		place, err := json.Marshal(place{N: n, Port: first, Peers: strings.Join(peers, ",")})
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(c.RootDir, "place.json"), place, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// place is what a replica has to know to build its configuration again.
type place struct {
	N     int    `json:"n"`
	Port  int    `json:"port"`
	Peers string `json:"peers"`
}

func run(home, executor, threads string) error {
	text, err := os.ReadFile(filepath.Join(home, "place.json"))
	if err != nil {
		return err
	}
	var p place
	if err := json.Unmarshal(text, &p); err != nil {
		return fmt.Errorf("place.json: %w", err)
	}
	c := configuration(home, p.N, p.Port)
	c.P2P.PersistentPeers = p.Peers
	key, err := p2p.LoadNodeKey(c.NodeKeyFile())
	if err != nil {
		return err
	}
	app, err := start(filepath.Join(home, "graph"), executor, threads)
	if err != nil {
		return err
	}
	logger := log.NewFilter(log.NewTMLogger(log.NewSyncWriter(os.Stderr)), log.AllowError())
	n, err := node.NewNode(c, privval.LoadFilePV(c.PrivValidatorKeyFile(), c.PrivValidatorStateFile()), key,
		proxy.NewLocalClientCreator(app), node.DefaultGenesisDocProviderFunc(c), config.DefaultDBProvider,
		node.DefaultMetricsProvider(c.Instrumentation), logger)
	if err != nil {
		return err
	}
	if err := n.Start(); err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
	err = n.Stop()
	n.Wait()
	app.stop()
	return err
}
