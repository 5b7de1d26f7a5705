/**
 * Converts fetched descriptions. Large ones, and YAML, are converted in a worker thread, one at a time and within limits
 * of time and memory.
 */
import { Worker } from "node:worker_threads";
import type { Clock } from "../../base/clock.ts";
import { embeddedText } from "../../base/embedded-files.ts";
import { runInSlices } from "../../base/sliced-work.ts";
import type { DescriptionMessage, DescriptionTask } from "./description-worker.ts";
import { type OpenApiDocument, parseJsonOpenApi } from "./document.ts";
import { convertOperations, type Operation, type Operations, type Selection } from "./operations.ts";

export interface LoadedApi {
  readonly about: Pick<OpenApiDocument, "title" | "version" | "description">;
  readonly operations: Operations;
}

const WORKER_FILE = "description-worker.js";
/** Parsing a smaller description takes a few milliseconds. */
export const SMALL_JSON_CHARS = 256 * 1024;
const MAX_CONVERSION_MS = 60_000;
const MAX_CONVERSION_MIB = 256;

let running: Promise<unknown> = Promise.resolve();

/** Rejects with an Error that has the reason. */
export async function loadDescription(text: string, selection: Selection, clock: Clock): Promise<LoadedApi> {
  const small = text.length <= SMALL_JSON_CHARS ? parseJsonOpenApi(text) : undefined;
  if (small !== undefined) return convertDescription(small, selection);
  const loaded = running.then(() => convertInWorker({ text, selection }, clock));
  running = loaded.catch(() => undefined);
  return loaded;
}

/** The description itself may be large, so the result does not refer to it. */
export async function convertDescription(document: OpenApiDocument, selection: Selection): Promise<LoadedApi> {
  const operations = await runInSlices(convertOperations(document, selection), () => false);
  const { title, version, description } = document;
  return { about: { title, version, description }, operations };
}

function convertInWorker(workerData: DescriptionTask, clock: Clock): Promise<LoadedApi> {
  const options = { workerData, resourceLimits: { maxOldGenerationSizeMb: MAX_CONVERSION_MIB } };
  const embedded = embeddedText(WORKER_FILE);
  const worker =
    embedded === undefined
      ? new Worker(new URL(`./${WORKER_FILE}`, import.meta.url), options)
      : new Worker(embedded, { ...options, eval: true });
  const byName = new Map<string, Operation>();
  const converted = new Promise<LoadedApi>((resolve, reject) => {
    const timer = clock.after(MAX_CONVERSION_MS, () =>
      reject(new Error(`its description could not be converted within ${MAX_CONVERSION_MS / 1000} s`)),
    );
    worker.once("error", (error) => reject(new Error(`its description could not be converted: ${error.message}`)));
    worker.once("exit", () => {
      timer.cancel();
      reject(new Error("its description could not be converted"));
    });
    worker.on("message", (message: DescriptionMessage) => {
      if (message.kind === "failed") reject(new Error(message.reason));
      else if (message.kind === "done") resolve({ about: message.about, operations: { byName, left: message.left } });
      else {
        for (const operation of message.operations) byName.set(operation.name, operation);
        // The next batch is taken in another iteration of the event loop.
        setImmediate(() => worker.postMessage("next"));
      }
    });
  });
  return converted.finally(() => void worker.terminate());
}
