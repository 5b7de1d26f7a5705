#!/usr/bin/env node
/**
 * `gwctl`: argv and exit codes only; commands are in cli/.
 */
import { writeSync } from "node:fs";
import { keepAwake } from "../base/clock.ts";
import { runGwctl } from "../cli/gwctl.ts";
import { processTerminal } from "../cli/terminal/terminal.ts";
import { processEnvironment } from "../config/text/env.ts";

// Keeps the process alive: a command that waits, such as a replay, has only timers, which do not.
const awake = keepAwake();
runGwctl(process.argv.slice(2), processTerminal(processEnvironment()))
  .then(
    (code) => {
      process.exitCode = code;
    },
    (error) => {
      writeSync(2, `gwctl: ${error instanceof Error ? error.message : String(error)}\n`);
      process.exitCode = 1;
    },
  )
  .finally(() => awake.cancel());
