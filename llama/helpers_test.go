//go:build unix

package llama

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// helpers are the programs that the test binary can be, by their first argument.
func helpers() map[string]func(args []string) int {
	return map[string]func([]string) int{
		"hold-engine": holdEngine,
		"hold-rpc":    holdRPC,
		"say-hello":   sayHello,
		"--model":     fakeEngine, // how the command line of an engine begins
		"--forbidden": tryForbidden,
	}
}

// held is what holdEngine says about the engine it started.
type held struct{ Engine, Shim int }

// holdEngine is a relay that starts an engine and does nothing more, to be killed.
func holdEngine(args []string) int {
	var e Engine
	var s Spec
	if err := json.Unmarshal([]byte(args[0]), &s); err != nil {
		fmt.Println(err)
		return 1
	}
	e, err := Find(context.Background(), FindOptions{Bin: os.Getenv("RELAY_LLAMA_BIN")})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	p, err := e.Start(context.Background(), s)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_ = json.NewEncoder(os.Stdout).Encode(held{p.PID(), p.cmd.Process.Pid})
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// holdRPC is a relay that starts an RPC server and does nothing more, to be killed.
func holdRPC(args []string) int {
	var s RPCSpec
	err := json.Unmarshal([]byte(args[0]), &s)
	var e Engine
	if err == nil {
		e, err = Find(context.Background(), FindOptions{Bin: os.Getenv("RELAY_LLAMA_BIN")})
	}
	var r *RPCServer
	if err == nil {
		r, err = e.StartRPC(context.Background(), s)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_ = json.NewEncoder(os.Stdout).Encode(held{r.PID(), r.p.cmd.Process.Pid})
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// sayHello tries RPC servers on ports of this machine.
func sayHello(ports []string) int {
	for _, port := range ports {
		said := "nobody"
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			if _, err := hello(c); err == nil {
				said = "hello"
			}
			_ = c.Close()
		}
		fmt.Println(said)
	}
	return 0
}

// fakeServer is an engine that is this very test binary.
func fakeServer(t testing.TB) Engine {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Engine{Server: self, flags: map[string]bool{}}
}

// fakeEngine behaves as the model's name tells it.
func fakeEngine(args []string) int {
	f := flag.NewFlagSet("", flag.ContinueOnError)
	name := f.String("alias", "", "")
	host := f.String("host", "", "")
	for _, n := range []string{"ctx-size", "parallel", "threads", "batch-size", "ubatch-size", "mmproj", "port", "api-key-file", "device", "n-gpu-layers", "split-mode",
		"tensor-split"} {
		f.String(n, "", "")
	}
	for _, n := range []string{"embeddings", "reranking", "metrics"} {
		f.Bool(n, false, "")
	}
	if err := f.Parse(args[1:]); err != nil {
		return 2
	}
	answer, health := `{"tokens_predicted":1}`, http.StatusOK
	status := http.StatusOK
	switch *name {
	case "dies":
		fmt.Fprintln(os.Stderr, "0.00.001.000 I srv    load_model: loading model")
		fmt.Fprintln(os.Stderr, "0.00.002.000 E llama_model_load: error loading model: the tensors are made of cheese")
		fmt.Fprintln(os.Stderr, "0.00.003.000 E srv  llama_server: exiting due to model loading error")
		return 1
	case "silent":
		return 3
	case "aborts":
		fmt.Fprintln(os.Stderr, "/src/ggml.c:1: GGML_ASSERT(false) failed")
		_ = syscall.Kill(os.Getpid(), syscall.SIGABRT)
		select {}
	case "loads for ever":
		health = http.StatusServiceUnavailable
	case "refuses":
		status, answer = http.StatusInternalServerError, `{"error":{"message":"no compute for you"}}`
	case "empty":
		answer = `{"tokens_predicted":0}`
	case "computes on the CPU":
		fmt.Fprintln(os.Stderr, "0.00.001.000 I load_tensors: offloaded 7/7 layers to GPU")
		fmt.Fprintln(os.Stderr, "0.00.001.000 I load_tensors:   CPU_Mapped model buffer size =    10.00 MiB")
	case "computes on a GPU":
		fmt.Fprintln(os.Stderr, "0.00.001.000 I load_tensors: offloaded 7/7 layers to GPU")
		fmt.Fprintln(os.Stderr, "0.00.001.000 I load_tensors:    CUDA_Host model buffer size =    10.00 MiB")
		fmt.Fprintln(os.Stderr, "0.00.001.000 I load_tensors:        CUDA0 model buffer size =   100.00 MiB")
		fmt.Fprintln(os.Stderr, "0.00.001.000 I llama_kv_cache:      CUDA0 KV buffer size =    20.00 MiB")
		fmt.Fprintln(os.Stderr, "0.00.001.000 I sched_reserve:        CPU compute buffer size =    5.00 MiB")
	case "computes on one of two":
		fmt.Fprintln(os.Stderr, "0.00.001.000 I load_tensors: offloaded 7/7 layers to GPU")
		fmt.Fprintln(os.Stderr, "0.00.001.000 I load_tensors:        CUDA0 model buffer size =   100.00 MiB")
		fmt.Fprintln(os.Stderr, "0.00.001.000 I load_tensors:        CUDA1 model buffer size =     0.00 MiB")
	case "computes in matrix units":
		fmt.Fprintln(os.Stderr, "0.00.001.000 I load_tensors: offloaded 7/7 layers to GPU")
		fmt.Fprintln(os.Stderr, "0.00.001.000 I load_tensors:          AMX model buffer size =   100.00 MiB")
	case "computes somewhere":
		fmt.Fprintln(os.Stderr, "0.00.001.000 I load_tensors:       Abacus model buffer size =   100.00 MiB")
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	}
	l, err := net.Listen("unix", *host)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var asked atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(health) })
	mux.HandleFunc("/completion", func(w http.ResponseWriter, r *http.Request) {
		if *name == "hangs" || *name == "hangs later" && asked.Add(1) > 1 {
			<-r.Context().Done()
			return
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	})
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		if *name == "slow counters" {
			<-r.Context().Done()
		}
		_, _ = io.WriteString(w, counters)
	})
	mux.HandleFunc("/v1/embeddings", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"data":[{"embedding":[0.5]}]}`)
	})
	mux.HandleFunc("/v1/rerank", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"results":[{"index":0,"relevance_score":-3.5}]}`)
	})
	mux.HandleFunc("/env", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Join(os.Environ(), "\n"))
	})
	mux.HandleFunc("/headers", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		_ = r.Header.Write(w)
	})
	mux.HandleFunc("/args", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Join(os.Args, "\n"))
	})
	mux.HandleFunc("/log", func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		fmt.Fprint(os.Stderr, string(text))
	})
	fmt.Fprintln(os.Stderr, "0.00.001.000 I srv  llama_server: listening on unix://"+*host)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	fmt.Fprintln(os.Stderr, srv.Serve(l))
	return 1
}

// fakeSpec is a spec for a fake engine that behaves as name says.
func fakeSpec(t testing.TB, name string) Spec {
	t.Helper()
	dir := t.TempDir()
	model := filepath.Join(dir, "model.gguf")
	if err := os.WriteFile(model, []byte("no fake engine reads this"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Spec{Name: name, Model: model, Context: 256, RunDir: filepath.Join(dir, "run")}
}
