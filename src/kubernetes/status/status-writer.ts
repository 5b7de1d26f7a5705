/**
 * Writes statuses that differ, a few at a time. A conflict or a failure is no news: the next look at the cluster computes
 * it again. What was written is remembered until the watch shows it, so that nothing is written twice.
 */
import { objectKey } from "../../config/cluster/kubernetes-object.ts";
import type { Logger } from "../../observe/log/logger.ts";
import { KINDS, pathOfObject } from "../cache/kinds.ts";
import { type ApiClient, ApiError } from "../client/api-client.ts";
import type { DesiredStatus } from "./desired-status.ts";

const PARALLEL = 8;

export interface StatusWriter {
  /** Resolves when all were tried; true if some must be tried again. */
  write(statuses: readonly DesiredStatus[]): Promise<boolean>;
  /** How many writes the server took. */
  written(): number;
}

export function createStatusWriter(client: ApiClient, logger: Logger): StatusWriter {
  /** Object → the version it had when we wrote, and what: the watch may be behind. */
  const sent = new Map<string, { readonly version: string | undefined; readonly text: string }>();
  let written = 0;

  async function writeOne({ object, status }: DesiredStatus): Promise<boolean> {
    const kind = KINDS.find((one) => one.kind === object.kind);
    if (!kind) return false;
    const key = `${object.kind} ${objectKey(object)}`;
    const { resourceVersion } = object.metadata;
    const text = JSON.stringify(status);
    const before = sent.get(key);
    if (before?.version === resourceVersion && before?.text === text) return false;
    const { namespace = "", name } = object.metadata;
    try {
      await client.request({
        method: "PATCH",
        path: pathOfObject(kind, namespace, name, "status"),
        type: "application/merge-patch+json",
        body: { metadata: { resourceVersion }, status },
      });
      sent.set(key, { version: resourceVersion, text });
      written += 1;
      return false;
    } catch (error) {
      // Somebody else wrote, or it is gone: the watch brings the news.
      if (error instanceof ApiError && (error.status === 409 || error.status === 404)) return false;
      logger.warn("a status could not be written", { object: key, reason: (error as Error).message });
      return true;
    }
  }

  return {
    written: () => written,
    async write(statuses) {
      const queue = [...statuses];
      let isLeft = false;
      const worker = async (): Promise<void> => {
        for (let next = queue.shift(); next !== undefined; next = queue.shift())
          if (await writeOne(next)) isLeft = true;
      };
      await Promise.all(Array.from({ length: Math.min(PARALLEL, queue.length) }, worker));
      if (sent.size > 10_000) sent.clear();
      return isLeft;
    },
  };
}
