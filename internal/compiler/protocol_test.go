package compiler

import (
	"bytes"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestMessages(t *testing.T) {
	var b bytes.Buffer
	want := Request{Imports: []string{"wherry_reply"}, Level: 2}
	if err := writeMessage(&b, want, []byte("code")); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	var got Request
	body, err := readMessage(bytes.NewReader(whole), &got)
	if err != nil || string(body) != "code" || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %q, %v", got, body, err)
	}
	for n := range len(whole) {
		if _, err := readMessage(bytes.NewReader(whole[:n]), &got); err == nil || n > 0 && err == io.EOF {
			t.Errorf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	for _, bad := range []string{"\xff\xff\xff\xff\x00\x00\x00\x00", "\x02\x00\x00\x00\xff\xff\xff\xff{}"} {
		if _, err := readMessage(strings.NewReader(bad), &got); err == nil || !strings.Contains(err.Error(), "at most") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := writeMessage(io.Discard, Answer{Refused: strings.Repeat("x", maxHeadBytes)}, nil); err == nil {
		t.Error("a head that no reader takes was written")
	}
}

// TestServe: a compiler says hello, refuses a second request while it is busy, and ends with its socket.
func TestServe(t *testing.T) {
	ours, theirs := net.Pipe()
	block := make(chan struct{})
	ended := make(chan error)
	go func() {
		ended <- Serve(theirs, Hello{Compiler: "test"}, func(Request) Answer { <-block; return Answer{Object: []byte("late")} }, nil)
		theirs.Close()
	}()
	var h Hello
	if _, err := readMessage(ours, &h); err != nil || h.Version != Version || h.Compiler != "test" {
		t.Fatalf("%+v, %v", h, err)
	}
	for range 2 {
		if err := writeMessage(ours, Request{}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "second request") {
		t.Error(err)
	}
	close(block)
	ours.Close()
}

// FuzzReadMessage: what a compiler sends, which strangers' code may have taken over, is read or refused.
func FuzzReadMessage(f *testing.F) {
	var b bytes.Buffer
	if err := writeMessage(&b, Answer{Refused: "why"}, []byte("object")); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var a Answer
		body, err := readMessage(bytes.NewReader(b), &a)
		if err == nil && len(body) > len(b)-lengthBytes {
			t.Errorf("a body of %d bytes in %d", len(body), len(b))
		}
	})
}

// TestServeAnswersAll: what is too long for a message is answered too, rather than leaving who asked to wait for its deadline. What can wait is done after answers.
func TestServeAnswersAll(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	answers := []Answer{{Refused: strings.Repeat("é", maxHeadBytes)}, {Failed: strings.Repeat("\x01", maxHeadBytes)}, {Object: make([]byte, MaxBytes+1)}, {Object: []byte("made")}}
	next := 0
	rested := make(chan int, len(answers))
	go func() {
		defer theirs.Close()
		_ = Serve(theirs, Hello{}, func(Request) Answer { next++; return answers[next-1] }, func() { rested <- next }) // it ends with the pipe
	}()
	if err := ours.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := readMessage(ours, &Hello{}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"éé", "\x01", "split the function", ""} {
		if err := writeMessage(ours, Request{}, nil); err != nil {
			t.Fatal(err)
		}
		var a Answer
		made, err := readMessage(ours, &a)
		if err != nil || !strings.Contains(a.Refused+a.Failed, want) || (want == "") != (string(made) == "made") {
			t.Errorf("answer %d: %.20q, %.20q, %d bytes, %v", i, a.Refused, a.Failed, len(made), err)
		}
		if err != nil {
			return
		}
	}
	for {
		select {
		case after := <-rested:
			if after == len(answers) {
				return
			}
		case <-time.After(20 * time.Second):
			t.Fatal("it never rests")
		}
	}
}
