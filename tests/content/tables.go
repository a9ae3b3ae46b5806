package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/controlplane"
	"k8s.io/kubernetes/pkg/printers"
	"k8s.io/kubernetes/pkg/printers/internalversion"
	printerstorage "k8s.io/kubernetes/pkg/printers/storage"
)

// tables writes what kube-apiserver prints of each object: of every built-in kind empty and with all fields set, and of
// the objects in FILE, one in a line.
func tables(in, file string) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	packed, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	generator := printers.NewTableGenerator().With(internalversion.AddHandlers)
	t := tabler{convertor: printerstorage.TableConvertor{TableGenerator: generator}, out: json.NewEncoder(packed)}
	if err := t.out.Encode(map[string]any{"now": time.Now().UTC().Format(time.RFC3339Nano)}); err != nil {
		return err
	}
	for _, kind := range stableKinds() {
		empty, err := types.New(kind)
		if err != nil {
			return err
		}
		full := empty.DeepCopyObject()
		(&filler{}).fill(reflect.ValueOf(full).Elem(), 0)
		for _, object := range []runtime.Object{empty, full} {
			object.GetObjectKind().SetGroupVersionKind(kind)
			text, err := json.Marshal(object)
			if err != nil {
				return err
			}
			t.print(kind, text)
		}
	}
	examples, err := os.Open(in)
	if err != nil {
		return err
	}
	defer examples.Close()
	lines := bufio.NewScanner(examples)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var meta metav1.TypeMeta
		if err := json.Unmarshal(lines.Bytes(), &meta); err != nil {
			return fmt.Errorf("%s: %w", lines.Text(), err)
		}
		if err := t.print(meta.GroupVersionKind(), lines.Bytes()); err != nil {
			return fmt.Errorf("%s: %w", lines.Text(), err)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return packed.Close()
}

type tabler struct {
	convertor printerstorage.TableConvertor
	out       *json.Encoder
}

// print writes the table of one object. Kinds that kube-apiserver does not serve are left out, with the reason.
func (t *tabler) print(kind schema.GroupVersionKind, text []byte) error {
	if !legacyscheme.Scheme.Recognizes(kind) {
		return nil
	}
	object, err := runtime.Decode(legacyscheme.Codecs.UniversalDeserializer(), text)
	if err != nil {
		return err
	}
	internal, err := legacyscheme.Scheme.ConvertToVersion(object, schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		fmt.Fprintln(os.Stderr, "left out:", kind, err)
		return err
	}
	table, err := t.convertor.ConvertToTable(context.Background(), internal, &metav1.TableOptions{})
	if err != nil {
		fmt.Fprintln(os.Stderr, "left out:", kind, err)
		return err
	}
	var columns []string
	for _, column := range table.ColumnDefinitions {
		columns = append(columns, strings.Join([]string{column.Name, column.Type, column.Format, fmt.Sprint(column.Priority)}, "|"))
	}
	return t.out.Encode(map[string]any{
		"object": json.RawMessage(text), "columns": columns, "cells": table.Rows[0].Cells, "conditions": table.Rows[0].Conditions,
	})
}
