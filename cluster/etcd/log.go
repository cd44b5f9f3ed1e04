package etcd

import (
	"context"
	"log/slog"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// slogCore is a zap core whose lines go to slog: an operator reads one log. Its warnings are our Info, for
// most tell of requests that were refused as they should be; what it calls Info is our Debug.
type slogCore struct{ log *slog.Logger }

func zapLogger(log *slog.Logger) *zap.Logger {
	if log == nil {
		return zap.NewNop()
	}
	return zap.New(slogCore{log})
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
	return slogCore{c.log.With(attrs(fields)...)}
}

func (c slogCore) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return to.AddCore(e, c)
	}
	return to
}

func (c slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	c.log.Log(context.Background(), levelOf(e.Level), "etcd: "+strings.TrimSpace(e.Message), attrs(fields)...)
	return nil
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
