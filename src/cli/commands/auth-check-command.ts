/**
 * `gwctl auth check -f <config>` checks every `mcpAuthentication` login of the configuration without a running
 * gateway.
 */

import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { Owner } from "../../base/owner.ts";
import { finish } from "../../base/sliced-work.ts";
import { openFetcher } from "../../http/client/fetcher.ts";
import { EgressGuard } from "../../http/egress-guard.ts";
import type { LoginLeg, LoginPolicy } from "../../identity/login/login-leg.ts";
import { FORMATS, formatOf, isData, printData } from "../terminal/output.ts";
import { CliError, printable, type Terminal } from "../terminal/terminal.ts";

export interface AuthCheckFlags {
  readonly file: readonly string[];
  readonly tokenFile?: string;
  readonly output?: string;
}

const KIND = "mcpAuthentication";

export async function authCheck(flags: AuthCheckFlags, terminal: Terminal): Promise<void> {
  const format = formatOf(flags.output, FORMATS);
  const [{ loadConfig, loadForeign, readSources }, { checkLogin }] = await Promise.all([
    import("../../config/load/load.ts"),
    import("../../identity/login/login-check.ts"),
  ]);
  const token = flags.tokenFile === undefined ? undefined : readToken(flags.tokenFile, terminal);
  const sources = sourcesOf(() => readSources(flags.file, terminal.readStdin));
  const own = finish(loadConfig(sources, terminal.environment));
  const loaded = finish(loadForeign(own, sources, terminal.environment));
  if (!loaded.ok) throw new CliError(loaded.problems.map((problem) => problem.toLine()).join("\n"));
  const { gateways, routes } = loaded.config;
  const outer = gateways.flatMap(({ policies }) => policies);
  const logins = [...gateways, ...routes].flatMap(({ policies }) =>
    policies
      .filter(({ kind }) => kind === KIND)
      .map((login) => ({ ...login, hasCors: [...outer, ...policies].some(({ kind }) => kind === "cors") })),
  );
  if (logins.length === 0)
    throw new CliError(`no ${KIND} policy in ${flags.file.join(", ")}: there is no login to check`);

  const fetcher = openFetcher(terminal.clock, EgressGuard.for("configuration"));
  let failures = 0;
  const results: { owner: string; checks: LoginLeg[] }[] = [];
  try {
    for (const { owner, config, place, hasCors } of logins) {
      const checks: LoginLeg[] = [];
      results.push({ owner, checks });
      if (format === "text") terminal.out(`${printable(owner)}\n`);
      const folder = dirname(place.document.file);
      const legs = checkLogin({
        policy: config as LoginPolicy,
        fetch: fetcher.of(Owner.standalone),
        clock: terminal.clock,
        readFile: (path) => readFileSync(resolve(folder, path), "utf8"),
        gateway: { hasCors },
        token,
      });
      for await (const leg of legs) {
        if (leg.ok === false) failures += 1;
        checks.push(leg);
        if (format === "text") terminal.out(lineOf(leg));
      }
    }
  } finally {
    fetcher.close();
  }
  if (isData(format)) printData(results, format, terminal);
  if (failures > 0) throw new CliError(`${failures} login ${failures === 1 ? "check" : "checks"} failed`);
}

function lineOf({ leg, ok, message, hint }: LoginLeg): string {
  const mark = ok === undefined ? "-" : ok ? "✓" : "✗";
  const line = `  ${mark} ${leg.padEnd(14)} ${message}\n`;
  return printable(hint === undefined ? line : `${line}    ${" ".repeat(14)} → ${hint}\n`);
}

function sourcesOf<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw new CliError((error as Error).message);
  }
}

function readToken(path: string, terminal: Terminal): string {
  try {
    return (path === "-" ? terminal.readStdin() : readFileSync(path, "utf8")).trim();
  } catch (error) {
    throw new CliError(`cannot read the token file ${path}: ${(error as Error).message}`);
  }
}
