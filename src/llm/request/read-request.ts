/**
 * What an LLM request asks for, by its path and its body together. Routing, model access, limits, prices and the log
 * all go by what is found here; where path and body say different things, the provider could go by the other one,
 * so that is refused.
 */
import { finish, type Steps } from "../../base/turns.ts";
import { type Dialect, dialectOf } from "./dialect.ts";
import { type KeyCase, modelProblem, type RequestScan, scanSteps } from "./scan-request.ts";

export type RequestReading =
  | {
      readonly ok: true;
      readonly dialect: Dialect;
      readonly scan: RequestScan;
      readonly model: string | undefined;
      readonly streaming: boolean;
    }
  | { readonly ok: false; readonly dialect: Dialect; readonly reason: string };

export function readRequest(path: string, bytes: Buffer, keyCase: KeyCase): RequestReading {
  return finish(readingSteps(path, bytes, keyCase));
}

/** The same in steps. */
export function* readingSteps(path: string, bytes: Buffer, keyCase: KeyCase): Steps<RequestReading> {
  const dialect = dialectOf(path);
  const scanned = yield* scanSteps(bytes, keyCase);
  if (!scanned.ok) return { ok: false, dialect, reason: scanned.reason };
  const { scan } = scanned;
  const reason = conflict(dialect, scan);
  if (reason !== undefined) return { ok: false, dialect, reason };
  return {
    ok: true,
    dialect,
    scan,
    model: dialect.pathModel ?? scan.model,
    streaming: dialect.pathStream ?? scan.stream ?? false,
  };
}

function conflict({ pathModel, pathStream, format }: Dialect, scan: RequestScan): string | undefined {
  if (pathModel === undefined) return undefined;
  const problem = modelProblem(pathModel);
  if (problem !== undefined) return problem;
  if (scan.model !== undefined && withoutCollection(scan.model) !== pathModel)
    return "'model' in the body is not the model in the path";
  // Only there is `stream` a member of the body as well (Claude under Google's paths).
  return format === "messages" && scan.stream !== undefined && scan.stream !== pathStream
    ? "'stream' in the body is not what the path asks for"
    : undefined;
}

/** Google's bodies name a model with its collection, or with its whole place. */
export function withoutCollection(model: string): string {
  return model.replace(/^(?:.*\/)?(?:models|tunedModels)\//, "");
}
