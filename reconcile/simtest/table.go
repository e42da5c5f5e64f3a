package simtest

import (
	"fmt"
	"time"
)

// table is a metav1.Table of objects with the columns that every kind has.
func (c call) table(objects []Object, about map[string]any) Object {
	rows := make([]any, 0, len(objects))
	for _, o := range objects {
		o = c.kind.fromStored(o)
		row := map[string]any{"cells": []any{o.Name(), age(o)}}
		switch c.option("includeObject") {
		case "None":
		case "Object":
			row["object"] = map[string]any(o)
		default:
			row["object"] = map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": o["metadata"]}
		}
		rows = append(rows, row)
	}
	return Object{
		"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": about, "rows": rows,
		"columnDefinitions": []any{
			map[string]any{"name": "Name", "type": "string", "format": "name", "description": "The name of the object", "priority": 0},
			map[string]any{"name": "Age", "type": "date", "format": "", "description": "The time since the creation", "priority": 0},
		},
	}
}

// age is the time since the creation as kubectl shows it.
func age(o Object) string {
	created, err := time.Parse(time.RFC3339, o.text("metadata", "creationTimestamp"))
	if err != nil {
		return "<unknown>"
	}
	passed := time.Since(created)
	seconds, minutes, hours := int(passed.Seconds()), int(passed.Minutes()), int(passed.Hours())
	switch {
	case seconds < 120:
		return fmt.Sprintf("%ds", seconds)
	case minutes < 10 && seconds%60 != 0:
		return fmt.Sprintf("%dm%ds", minutes, seconds%60)
	case minutes < 180:
		return fmt.Sprintf("%dm", minutes)
	case hours < 8 && minutes%60 != 0:
		return fmt.Sprintf("%dh%dm", hours, minutes%60)
	case hours < 48:
		return fmt.Sprintf("%dh", hours)
	case hours < 192 && hours%24 != 0:
		return fmt.Sprintf("%dd%dh", hours/24, hours%24)
	default:
		return fmt.Sprintf("%dd", hours/24)
	}
}
