package etcd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// slogCore is a zap core whose lines go to slog: an operator reads one log. Its warnings are our Info, for
// most tell of requests that were refused as they should be; what it calls Info is our Debug.
type slogCore struct {
	log  *slog.Logger
	ends *atomic.Bool // the member was told to end: from then on a listener that is closed is no error
}

func zapLogger(log *slog.Logger, ends *atomic.Bool) *zap.Logger {
	if log == nil {
		return zap.NewNop()
	}
	return zap.New(slogCore{log, ends})
}

// levelOf is zap's level in slog; a panic or fatal line ends the process by zap itself.
func levelOf(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.ErrorLevel:
		return slog.LevelError
	case l == zapcore.WarnLevel:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

func (c slogCore) Enabled(l zapcore.Level) bool {
	return c.log.Enabled(context.Background(), levelOf(l))
}

func (c slogCore) With(fields []zapcore.Field) zapcore.Core {
	return slogCore{c.log.With(attrs(fields)...), c.ends}
}

func (c slogCore) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return to.AddCore(e, c)
	}
	return to
}

func (c slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	level := levelOf(e.Level)
	if level == slog.LevelError && c.ends.Load() && slices.ContainsFunc(fields, ofClosed) {
		level = slog.LevelDebug
	}
	c.log.Log(context.Background(), level, "etcd: "+strings.TrimSpace(e.Message), attrs(fields)...)
	return nil
}

// ofClosed reports a field that says that a listener or connection was closed here.
func ofClosed(f zapcore.Field) bool {
	err, ok := f.Interface.(error)
	return ok && errors.Is(err, net.ErrClosed)
}

func (slogCore) Sync() error { return nil }

func attrs(fields []zapcore.Field) (out []any) {
	values := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(values)
	}
	for _, f := range fields {
		if v, ok := values.Fields[f.Key]; ok {
			out = append(out, slog.Any(f.Key, v))
		}
	}
	return out
}
