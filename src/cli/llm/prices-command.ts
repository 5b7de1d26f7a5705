/**
 * `gwctl prices import`: the price data that LiteLLM publishes as a catalogue for `modelCatalog`, on standard output or in a
 * file. The data is read from a file; nothing is downloaded.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { CliError } from "../terminal/cli-error.ts";
import { printable, type Terminal } from "../terminal/terminal.ts";
import { type Catalogue, fromLitellm } from "./litellm-prices.ts";

export interface ImportFlags {
  readonly output?: string;
  readonly provider?: readonly string[];
}

export function importPrices(file: string, flags: ImportFlags, terminal: Terminal): void {
  const { providers } = fromLitellm(readData(file));
  const wanted = flags.provider === undefined ? undefined : new Set(flags.provider);
  const chosen: Catalogue = {
    providers: Object.fromEntries(Object.entries(providers).filter(([name]) => wanted?.has(name) ?? true)),
  };
  const count = Object.values(chosen.providers).reduce((sum, { models }) => sum + Object.keys(models).length, 0);
  if (count === 0) {
    const known = Object.keys(providers).join(", ");
    throw new CliError(
      known === "" ? `${file} has no prices that can be used` : `no such provider; ${file} has ${known}`,
    );
  }
  const text = `${JSON.stringify(chosen, null, 1)}\n`;
  if (flags.output === undefined) terminal.out(printable(text));
  else writeFileSync(flags.output, text);
  terminal.err(printable(`${count} models of ${Object.keys(chosen.providers).join(", ")}\n`));
}

function readData(file: string): Readonly<Record<string, unknown>> {
  try {
    const data: unknown = JSON.parse(readFileSync(file, "utf8"));
    if (typeof data === "object" && data !== null && !Array.isArray(data)) return data as Record<string, unknown>;
  } catch (error) {
    throw new CliError(`${file}: ${(error as Error).message}`);
  }
  throw new CliError(`${file} is not a JSON object`);
}
