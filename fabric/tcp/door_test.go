package tcp

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// TestSilentDiallers: however many connections say nothing, and come again when they are ended, one that does is served.
func TestSilentDiallers(t *testing.T) {
	const silent = 400
	tr, err := New(Config{AcceptTime: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	addr, err := tr.Listen("127.0.0.1:0", func(p fabric.Pending) {
		_, _ = io.Copy(p, p)
		p.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var crowd sync.WaitGroup
	first := make(chan struct{}, silent)
	for range silent {
		crowd.Go(func() {
			for told := false; ; {
				c, err := net.Dial("tcp", addr)
				if !told {
					told = true
					first <- struct{}{}
				}
				if err != nil {
					return
				}
				over := make(chan struct{})
				go func() {
					select {
					case <-stop:
					case <-over:
					}
					c.Close()
				}()
				_, _ = c.Read(make([]byte, 1))
				close(over)
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for range silent {
		<-first
	}
	for range 3 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(patience))
		buf := make([]byte, 5)
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "hello" {
			t.Errorf("%q, %v", buf, err)
		}
		c.Close()
	}
	close(stop)
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	crowd.Wait()
}
