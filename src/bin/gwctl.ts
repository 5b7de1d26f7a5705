#!/usr/bin/env node
/**
 * Runs gwctl. The commands are in src/cli.
 */
import { keepAwake } from "../base/clock.ts";
import { print } from "../base/print.ts";
import { runGwctl } from "../cli/gwctl.ts";
import { processTerminal } from "../cli/terminal/terminal.ts";
import { processEnvironment } from "../config/text/env.ts";

// The timers of the system clock do not keep the process alive while a command waits.
const awake = keepAwake();
runGwctl(process.argv.slice(2), processTerminal(processEnvironment()))
  .then(
    (code) => {
      process.exitCode = code;
    },
    (error) => {
      print(2, `gwctl: ${error instanceof Error ? error.message : String(error)}\n`);
      process.exitCode = 1;
    },
  )
  .finally(() => awake.cancel());
