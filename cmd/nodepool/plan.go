package main

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/operator"
)

// planCommand shows what would be done.
func planCommand() *cobra.Command {
	o := options{metrics: ":0", health: ":0", stop: time.Second}
	prices := map[string]string{}
	c := &cobra.Command{
		Use:   "plan [POOL]",
		Short: "Show what would be started, stopped, launched and terminated now, why, and what it costs an hour",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			known, err := parsePrices(prices)
			if err != nil {
				return err
			}
			w, err := o.operator(c.Context(), c.ErrOrStderr())
			if err != nil {
				return &program.UsageError{Err: err}
			}
			preview := operator.Preview{Operator: *w, Prices: known}
			if len(args) > 0 {
				preview.Pool = args[0]
			}
			return preview.Write(c.Context(), c.OutOrStdout())
		},
	}
	o.shared(c.Flags())
	c.Flags().StringToStringVar(&prices, "price", nil, "what an hour of a machine costs, such as m5.xlarge=0.192; may be repeated")
	return c
}

func parsePrices(texts map[string]string) (map[string]float64, error) {
	prices := map[string]float64{}
	for kind, text := range texts {
		price, err := strconv.ParseFloat(text, 64)
		if err != nil || !(price >= 0) || math.IsInf(price, 1) {
			return nil, &program.UsageError{Err: fmt.Errorf("--price: is %s=%s, must be a type and a number, such as m5.xlarge=0.192", kind, text)}
		}
		prices[kind] = price
	}
	return prices, nil
}
