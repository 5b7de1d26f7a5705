/**
 * Records which client created a task, so that only this client can read, change, or cancel it. Each client has one
 * encrypted record per target in the store.
 */
import { createHash } from "node:crypto";
import { Sealer } from "../../store/sealer.ts";
import { type Store, StoreUnavailable } from "../../store/store.ts";
import type { ReplicaServices } from "./replica-bus.ts";

const MAX_TASKS = 500;
const MAX_RECORD_CHARS = 128 * 1024;
const MAX_ARGUMENT_CHARS = 4 * 1024;
const KEPT_MS = 24 * 3_600_000;
const REFRESHED_AFTER_MS = 3_600_000;
/** Other calls of the client may change the record at the same time, so writes are retried. */
const TRIES = 20;

export interface TaskOrigin {
  readonly tool: string;
  /** The value is undefined if no authorization rules apply or the arguments are too long. */
  readonly arguments?: unknown;
}

interface KeptTask extends TaskOrigin {
  readonly id: string;
}

interface Kept {
  readonly atMs: number;
  /** The oldest task comes first. */
  readonly tasks: readonly KeptTask[];
}

export interface OwnTasks {
  origin(taskId: string): TaskOrigin | undefined;
}

export interface TaskRecordsOptions extends ReplicaServices {
  readonly backend: string;
}

export interface ClientTasks {
  /** Rejects if the store is unavailable. */
  add(target: string, taskId: string, origin: TaskOrigin): Promise<void>;
  /** Rejects if the store is unavailable. */
  of(target: string): Promise<OwnTasks>;
}

export class TaskRecords {
  readonly #env: TaskRecordsOptions;
  readonly #store: Store;

  constructor(env: TaskRecordsOptions) {
    this.#env = env;
    this.#store = env.store.at("mcp-tasks");
  }

  client(owner: string): ClientTasks {
    const place = (target: string): string => digest(JSON.stringify([this.#env.backend, target, owner]));
    return {
      add: (target, taskId, origin) => this.#add(place(target), { id: digest(taskId), ...fitting(origin) }),
      of: (target) => this.#of(place(target)),
    };
  }

  async #add(name: string, task: KeptTask): Promise<void> {
    for (let tries = 0; tries < TRIES; tries++) {
      const before = await this.#store.get(name);
      const others = this.#read(name, before).tasks.filter(({ id }) => id !== task.id);
      if (await this.#replace(name, before, bounded([...others, task]))) return;
    }
    throw new StoreUnavailable("other calls changed the record of tasks at the same time");
  }

  async #of(name: string): Promise<OwnTasks> {
    const text = await this.#store.get(name);
    const { atMs, tasks } = this.#read(name, text);
    if (text !== undefined && tasks.length > 0 && this.#env.clock.now() - atMs > REFRESHED_AFTER_MS)
      this.#replace(name, text, tasks).catch((error: Error) =>
        this.#env.logger.debug("record of MCP tasks not refreshed", { reason: error.message }),
      );
    return {
      origin: (taskId) => {
        const id = digest(taskId);
        return tasks.find((one) => one.id === id);
      },
    };
  }

  #replace(name: string, before: string | undefined, tasks: readonly KeptTask[]): Promise<boolean> {
    const atMs = this.#env.clock.now();
    const kept: Kept = { atMs, tasks };
    return this.#store.replace(name, before, this.#sealer().seal(name, kept), { expiresAtMs: atMs + KEPT_MS });
  }

  /** A record that cannot be decrypted counts as empty. */
  #read(name: string, sealed: string | undefined): Kept {
    return (sealed === undefined ? undefined : this.#sealer().open<Kept>(name, sealed)) ?? { atMs: 0, tasks: [] };
  }

  #sealer(): Sealer {
    return new Sealer(this.#env.key.sign("mcp tasks"), "mcp tasks");
  }
}

function fitting(origin: TaskOrigin): TaskOrigin {
  const { tool, arguments: args } = origin;
  return args !== undefined && JSON.stringify(args).length <= MAX_ARGUMENT_CHARS ? origin : { tool };
}

function bounded(tasks: readonly KeptTask[]): readonly KeptTask[] {
  let chars = 0;
  let from = tasks.length;
  while (from > 0 && tasks.length - from < MAX_TASKS) {
    chars += JSON.stringify(tasks[from - 1]).length + 1;
    if (chars > MAX_RECORD_CHARS) break;
    from -= 1;
  }
  return tasks.slice(from);
}

function digest(text: string): string {
  return createHash("sha256").update(text).digest("base64url");
}
