# shellcheck shell=bash
# Runs tests and reports which failed, which were skipped and why, and how long they took. Sourced by scripts/test and
# scripts/unit, in the root of the tree.

test_output=$(mktemp)
KNMSTATE_SKIPPED=$(mktemp)
KNMSTATE_FEATURE_RECORDS=$(mktemp)
export KNMSTATE_SKIPPED KNMSTATE_FEATURE_RECORDS
trap 'rm -f "$test_output" "$KNMSTATE_SKIPPED" "$KNMSTATE_FEATURE_RECORDS"' EXIT

# A failed test prints its reason; a backtrace of a screen length would hide it.
export RUST_LIB_BACKTRACE=0

test_start=$SECONDS
test_status=0 passed=0 failed=0 ignored=0 skipped=0
notes=()

# run_tests ARGUMENTS...: cargo test with these arguments. Sets the counts above.
run_tests() {
  # The runner is an argument and not an environment variable, because tests start cargo, too.
  local runner="target.'cfg(all())'.runner=['$PWD/scripts/lib/timed-test']"
  cargo --config "$runner" test --no-fail-fast "$@" 2>&1 | tee "$test_output"
  test_status=${PIPESTATUS[0]}
  read -r passed failed ignored < <(
    awk '/^test result:/ { passed += $4; failed += $6; ignored += $8 } END { print passed + 0, failed + 0, ignored + 0 }' \
      "$test_output"
  )
  skipped=$(sort -u "$KNMSTATE_SKIPPED" | grep -c .)
}

# Each line: seconds, group, test. The group is the package; tests of behaviours are grouped by their first module.
test_times() {
  awk '
    /^ +Package / { package = $2; behaviours = $3 ~ /^behaviours-/ }
    /^test .* \.\.\. (ok|FAILED).* <[0-9.]+s>$/ {
      seconds = $NF; gsub(/[<s>]/, "", seconds)
      name = $2; split(name, modules, "::")
      print seconds, behaviours ? modules[1] : package, name
    }' "$test_output"
}

# Times vary between machines, so a group over its budget is a warning for the reviewer, never a failure.
report_times() {
  test_times | sort -rn | head -20 |
    awk 'NR == 1 { print "\nSlowest tests:" } { printf "  %7.1f s  %s %s\n", $1, $2, $3 }'
  test_times | awk '
    FILENAME != "-" { if ($1 !~ /^#/ && NF >= 2) budget[$1] = $2; next }
    { total[$2] += $1; count[$2]++ }
    END {
      for (group in total)
        printf "%.0f %s %d %s\n", total[group], group, count[group], group in budget ? budget[group] : "-"
    }' tests/budget.txt - | sort -rn |
    awk '
      NR == 1 { print "\nTime by group (sum over its tests) beside tests/budget.txt:" }
      {
        over = $4 != "-" && $1 > $4
        printf "  %6d s of %6s  %s, %d tests%s\n", $1, $4 == "-" ? "-" : $4 " s", $2, $3, over ? "  (over budget)" : ""
        if (over) warnings = warnings sprintf("  warning: %s took %d s; its budget is %d s\n", $2, $1, $4)
      }
      END { printf "%s", warnings }'
}

# report: the summary. Its last line is: N passed, N failed, N skipped. Fails unless all tests passed and no note was added.
report() {
  local note
  report_times
  echo
  echo "Summary, after $((SECONDS - test_start)) s:"
  ((failed == 0)) || sed -nE 's/^test (.*) \.\.\. FAILED.*$/  failed: \1/p' "$test_output" | sort -u
  sort -u "$KNMSTATE_SKIPPED" | sed 's/^/  skipped: /'
  ((ignored == 0)) || echo "  $ignored tests are marked #[ignore]: no test may be skipped in silence"
  for note in "${notes[@]}"; do echo "  $note"; done
  if ((test_status != 0 && failed == 0)); then echo "  the tests did not build or did not start"; fi
  echo "$((passed - skipped)) passed, $failed failed, $skipped skipped"
  ((test_status == 0 && ${#notes[@]} == 0 && ignored == 0 && passed > 0))
}
