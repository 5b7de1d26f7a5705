/**
 * The two databases of the history, for scenarios that both must pass.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { systemClock } from "../../../src/base/clock.ts";
import type { HistoryEngine } from "../../../src/record/history/engine.ts";
import { migrate } from "../../../src/record/history/migrations.ts";
import { openPostgresEngine } from "../../../src/record/history/postgres-engine.ts";
import { openSqliteEngine } from "../../../src/record/history/sqlite-engine.ts";
import type { UsageReport } from "../../../src/record/trace/traffic-numbers.ts";
import { type PostgresServer, skipWithoutPostgres, startPostgres } from "./postgres-server.ts";

export interface HistoryDatabase {
  /** A new folder, which is removed when the test ends. */
  readonly folder: string;
  /** The value of `config.history`, with more settings. */
  settings(more?: Readonly<Record<string, unknown>>): string;
  /** Opens the database directly, while no gateway uses it. */
  open(): Promise<HistoryEngine>;
}

export interface HistoryDatabaseKind {
  readonly name: "SQLite" | "PostgreSQL";
  readonly skip: string | false;
  create(t: TestContext): Promise<HistoryDatabase>;
}

let server: Promise<PostgresServer> | undefined;
let databases = 0;

/** One server for all tests of this process, which ends with it. Each test has its own database. */
export function sharedPostgres(): Promise<PostgresServer> {
  server ??= startPostgres({ endsWithProcess: true });
  return server;
}

export function temporaryFolder(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "history-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

export const HISTORY_DATABASES: readonly HistoryDatabaseKind[] = [
  {
    name: "SQLite",
    skip: false,
    async create(t) {
      const folder = temporaryFolder(t);
      return {
        folder,
        settings: (more = {}) => JSON.stringify({ folder, ...more }),
        open: () => openSqliteEngine(folder, systemClock),
      };
    },
  },
  {
    name: "PostgreSQL",
    skip: skipWithoutPostgres,
    async create(t) {
      const folder = temporaryFolder(t);
      const postgres = (await sharedPostgres()).database(`history${++databases}`);
      return {
        folder,
        settings: (more = {}) => JSON.stringify({ folder, postgres, ...more }),
        open: () => openPostgresEngine(postgres, () => undefined),
      };
    },
  },
];

/** Opens the database, which is closed when the test ends. */
export async function openedDatabase(t: TestContext, kind: HistoryDatabaseKind): Promise<HistoryEngine> {
  const engine = await (await kind.create(t)).open();
  t.after(() => engine.close());
  await migrate(engine);
  return engine;
}

export async function usageOf(adminUrl: string, query: string): Promise<UsageReport> {
  const response = await fetch(`${adminUrl}/debug/usage?${query}`);
  const text = await response.text();
  if (response.status !== 200) throw new Error(`${response.status} ${text}`);
  return JSON.parse(text) as UsageReport;
}
