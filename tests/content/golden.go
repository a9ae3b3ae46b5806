package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// golden writes a line for each kind: its JSON, a space, its protobuf in base64.
func golden(file string) error {
	kinds := stableKinds()
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	packed, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		object, err := types.New(kind)
		if err != nil {
			return err
		}
		(&filler{}).fill(reflect.ValueOf(object).Elem(), 0)
		object.GetObjectKind().SetGroupVersionKind(kind)
		text, err := json.Marshal(object)
		if err != nil {
			return fmt.Errorf("%v: %w", kind, err)
		}
		var encoded bytes.Buffer
		if err := binary.Encode(object, &encoded); err != nil {
			fmt.Fprintf(os.Stderr, "%v has no protobuf form\n", kind)
			continue
		}
		fmt.Fprintf(packed, "%s %s\n", text, base64.StdEncoding.EncodeToString(encoded.Bytes()))
	}
	if err := packed.Close(); err != nil {
		return err
	}
	return out.Close()
}

// stableKinds are the kinds of versions that have left beta, without lists and options of queries.
func stableKinds() []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for kind := range types.AllKnownTypes() {
		// Options of queries have messages that nobody sends.
		query := strings.HasSuffix(kind.Kind, "Options") && kind.Kind != "DeleteOptions"
		if isStable(kind.GroupVersion()) && kind.Kind != "WatchEvent" && !query && !strings.HasSuffix(kind.Kind, "List") {
			kinds = append(kinds, kind)
		}
	}
	sort.Slice(kinds, func(i, j int) bool { return kinds[i].String() < kinds[j].String() })
	return kinds
}

// filler sets every field to something that is not its zero.
type filler struct{ count int }

// deepest is where types that hold themselves end.
const deepest = 14

func (f *filler) fill(value reflect.Value, depth int) {
	f.count++
	switch target := value.Addr().Interface().(type) {
	case *metav1.Time:
		*target = metav1.Unix(1700000000+int64(f.count), 0)
		return
	case *metav1.MicroTime:
		*target = metav1.NewMicroTime(time.Unix(1700000000, int64(f.count)*1000))
		return
	case *metav1.Duration:
		target.Duration = time.Duration(f.count) * time.Second
		return
	case *resource.Quantity:
		*target = resource.MustParse(fmt.Sprintf("%dMi", f.count))
		return
	case *intstr.IntOrString:
		*target = intstr.FromInt32(int32(f.count))
		if f.count%2 == 0 {
			*target = intstr.FromString(fmt.Sprintf("%d%%", f.count%100))
		}
		return
	case *runtime.RawExtension:
		target.Raw = []byte(fmt.Sprintf(`{"kind":"Parameters","n":%d}`, f.count))
		return
	case *metav1.FieldsV1:
		*target = *metav1.NewFieldsV1(fmt.Sprintf(`{"f:x%d":{}}`, f.count))
		return
	case *apiextensions.JSON:
		target.Raw = []byte(fmt.Sprintf(`{"n":%d}`, f.count))
		return
	case *apiextensions.JSONSchemaPropsOrBool:
		*target = apiextensions.JSONSchemaPropsOrBool{Allows: true, Schema: &apiextensions.JSONSchemaProps{Type: "string"}}
		return
	case *apiextensions.JSONSchemaPropsOrArray:
		*target = apiextensions.JSONSchemaPropsOrArray{Schema: &apiextensions.JSONSchemaProps{Type: "string"}}
		return
	case *apiextensions.JSONSchemaPropsOrStringArray:
		*target = apiextensions.JSONSchemaPropsOrStringArray{Property: []string{"a", "b"}}
		return
	case *apiextensions.JSONSchemaProps:
		if depth > 7 {
			target.Type = "string"
			return
		}
	case *metav1.TypeMeta:
		return
	}
	f.fillKind(value, depth)
}

func (f *filler) fillKind(value reflect.Value, depth int) {
	switch value.Kind() {
	case reflect.String:
		value.SetString(fmt.Sprintf("text-%d", f.count))
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		value.SetInt(int64(f.count))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		value.SetUint(uint64(f.count % 250))
	case reflect.Float64:
		value.SetFloat(float64(f.count) + 0.5)
	case reflect.Pointer:
		if depth < deepest {
			value.Set(reflect.New(value.Type().Elem()))
			f.fill(value.Elem(), depth+1)
		}
	case reflect.Slice:
		if depth < deepest {
			value.Set(reflect.MakeSlice(value.Type(), 2, 2))
			f.fill(value.Index(0), depth+1)
			f.fill(value.Index(1), depth+1)
		}
	case reflect.Map:
		if depth < deepest {
			value.Set(reflect.MakeMap(value.Type()))
			key, element := reflect.New(value.Type().Key()).Elem(), reflect.New(value.Type().Elem()).Elem()
			f.fill(key, depth+1)
			f.fill(element, depth+1)
			value.SetMapIndex(key, element)
		}
	case reflect.Struct:
		for i := range value.NumField() {
			// Fields that the serializer leaves out are not set either.
			if field := value.Type().Field(i); field.IsExported() && field.Tag.Get("json") != "-" {
				f.fill(value.Field(i), depth+1)
			}
		}
	}
}
