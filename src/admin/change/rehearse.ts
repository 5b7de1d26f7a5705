/**
 * `POST /debug/rehearse`: a new configuration judges the last requests beside the one that serves, and the answer says
 * what would change. The body is the text of the configuration, or `{"sources": [{"file", "text"}]}`.
 */
import { z } from "zod";
import type { SourceText } from "../../config/load/load.ts";
import { type AdminEndpoint, jsonAnswer, textAnswer } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

const written = z.strictObject({
  sources: z.array(z.strictObject({ file: z.string().min(1), text: z.string() })).min(1),
});

export type RehearseAnswer =
  | { readonly ok: true; readonly report: object }
  | { readonly ok: false; readonly problems: readonly string[] };

/** Rejects with an Error; `isBusy` says whether another rehearsal runs. */
export interface RehearseParts {
  /** `left`: nobody waits for it any more. */
  rehearse(
    after: readonly SourceText[],
    facts: readonly Uint8Array[] | undefined,
    left: AbortSignal | undefined,
  ): Promise<RehearseAnswer>;
  isBusy(error: unknown): boolean;
}

/** Large configurations are generated; as JSON their texts grow. */
const MAX_REHEARSED_BYTES = 16 * 1024 * 1024;

export function rehearseEndpoint(parts: RehearseParts): AdminEndpoint {
  return {
    path: ADMIN_PATHS.rehearse,
    doc: "POST a configuration: what it would change for the last 10,000 requests. Nothing is sent.",
    maxBodyBytes: MAX_REHEARSED_BYTES,
    async POST(request) {
      const text = (await request.body()).toString();
      if (text.trim() === "") return textAnswer(400, "send the text of a configuration\n");
      try {
        const found = await parts.rehearse(sourcesIn(text), request.facts, request.left);
        if (found.ok) return jsonAnswer(found.report);
        return textAnswer(422, `${found.problems.join("\n")}\n`);
      } catch (error) {
        return textAnswer(parts.isBusy(error) ? 409 : 500, `${(error as Error).message}\n`);
      }
    },
  };
}

function sourcesIn(text: string): readonly SourceText[] {
  if (text.startsWith("{")) {
    try {
      const parsed = written.safeParse(JSON.parse(text));
      if (parsed.success) return parsed.data.sources;
    } catch {
      // YAML that begins like JSON.
    }
  }
  return [{ file: "<rehearsed>", text }];
}
