/**
 * Collects all output of a gateway during a run by source: responses, streams of the admin interface, and process
 * output. An empty source is a failure, because nothing was checked.
 */
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { Leak, Planted } from "./planted.ts";

const GATEWAY = fileURLToPath(new URL("../../../src/bin/gateway.js", import.meta.url));

export class Outputs {
  readonly #texts = new Map<string, string>();

  add(source: string, text: string): void {
    this.#texts.set(source, `${this.#texts.get(source) ?? ""}${text}\n`);
  }

  /** An answer with its head, as a client sees it. */
  async addAnswer(source: string, response: Response): Promise<string> {
    const body = await response.text();
    const head = [...response.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
    this.add(source, `${response.status}\n${head}\n\n${body}`);
    return body;
  }

  of(source: string): string {
    return this.#texts.get(source) ?? "";
  }

  /** One line per secret: where it was found, and what stands around it in the first place. */
  leaks(planted: Planted): string[] {
    const found = new Map<string, { sources: string[]; first: Leak }>();
    for (const [source, text] of this.#texts)
      for (const leak of planted.leaksIn(text)) {
        const known = found.get(leak.secret) ?? { sources: [], first: leak };
        known.sources.push(source);
        found.set(leak.secret, known);
      }
    return [...found].map(
      ([secret, { sources, first }]) =>
        `${secret} (${first.form}) in ${sources.join(", ")}: ${first.around.replace(/\s+/g, " ")}`,
    );
  }
}

export interface Stream {
  /** Everything so far. */
  text(): string;
  close(): void;
}

/** Reads an event stream from the moment at which it says that it is open. */
export async function openStream(url: string): Promise<Stream> {
  const abort = new AbortController();
  const response = await fetch(url, { signal: abort.signal });
  if (response.status !== 200 || !response.body) throw new Error(`${url}: ${response.status} ${await response.text()}`);
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = decoder.decode((await reader.read()).value, { stream: true });
  const readOn = async (): Promise<void> => {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += decoder.decode(value, { stream: true });
    }
  };
  // Ends when it is closed.
  readOn().catch(() => undefined);
  return { text: () => text, close: () => abort.abort() };
}

/** What `gateway` prints with these arguments, until it ends. */
export function gatewayOutput(
  args: readonly string[],
  environment: Readonly<Record<string, string>>,
): Promise<{ code: number | null; text: string }> {
  const child = spawn(process.execPath, [GATEWAY, ...args], { env: { PATH: process.env.PATH, ...environment } });
  let text = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (chunk: Buffer) => {
      text += chunk.toString();
    });
  child.stdin.end();
  return new Promise((resolve) => child.once("close", (code) => resolve({ code, text })));
}
