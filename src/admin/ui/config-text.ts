/**
 * `/ui/api/config-text`, `schema`, `validate`, and `save` return the configuration as written, the documentation of its
 * fields, and the changes of an edited text. Saving is rejected unless `config.allowConfigEdit` is set.
 */
import { createHash } from "node:crypto";
import { z } from "zod";
import { replaceFile } from "../../base/files.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { changesBetween } from "../../config/dump-changes.ts";
import type { SourceText } from "../../config/load/load.ts";
import { configSchema } from "../../config/schema/schema.ts";
import { readJson, tryReadJson } from "../../json/read-json.ts";
import { createRedaction, type Redaction } from "../../record/trace/redact.ts";
import {
  type AdminEndpoint,
  type AdminRequest,
  type AdminResponse,
  jsonResponse,
  textResponse,
} from "../server/endpoint.ts";
import type { Preview, PreviewConfig } from "./preview.ts";
import { misplacedMarkers, restoreSecrets, type ShownText, shownText } from "./shown-text.ts";

const BODY = peerInput("admin-client/configuration-edit");
const OWN_RESPONSE = peerInput("gateway/redacted-value");

export interface UiConfigOptions {
  read(): readonly SourceText[];
  readonly preview: PreviewConfig;
  readonly redaction: Redaction;
  readonly mayEdit: boolean;
}

export interface Problem {
  readonly file: string | undefined;
  readonly line: number | undefined;
  readonly column: number | undefined;
  readonly message: string;
}

const editSchema = z.strictObject({
  file: z.string(),
  /** The version that was edited must match, so that a file that changed in the meantime is not overwritten. */
  base: z.string(),
  text: z.string(),
});

export function uiConfigEndpoints(options: UiConfigOptions): AdminEndpoint[] {
  let schema: string | undefined;
  return [
    {
      path: "/ui/api/config-text",
      doc: "The configuration files with secrets redacted.",
      GET: () => jsonResponse({ files: options.read().map((source) => shownFile(source, options.redaction)) }),
    },
    {
      path: "/ui/api/schema",
      doc: "The configuration's JSON schema.",
      GET() {
        schema ??= JSON.stringify(z.toJSONSchema(configSchema, { io: "input", unrepresentable: "any" }));
        return { status: 200, type: "application/json", body: schema };
      },
    },
    {
      path: "/ui/api/validate",
      doc: "POST: checks an edited file and lists what it would change.",
      async POST(request) {
        const edit = await readEdit(request, options);
        return "rejection" in edit
          ? textResponse(edit.status, `${edit.rejection}\n`)
          : judgedResponse(judge(edit, options), edit, 200);
      },
    },
    {
      path: "/ui/api/save",
      doc: "POST: saves an edited file, if `config.allowConfigEdit` is true.",
      async POST(request) {
        if (!options.mayEdit)
          return textResponse(403, "saving is not allowed; set `config.allowConfigEdit: true` to allow it\n");
        const edit = await readEdit(request, options);
        if ("rejection" in edit) return textResponse(edit.status, `${edit.rejection}\n`);
        const judged = judge(edit, options);
        if (judged.problems.length > 0) return judgedResponse(judged, edit, 422);
        if (edit.source.file.startsWith("<")) return textResponse(409, "this configuration did not come from a file\n");
        try {
          replaceFile(edit.source.file, edit.restored.text);
        } catch (error) {
          const { code, message } = error as NodeJS.ErrnoException;
          const isFull = code === "ENOSPC" || code === "EDQUOT";
          return textResponse(isFull ? 507 : 500, `cannot save ${edit.source.file}: ${message}\n`);
        }
        return judgedResponse({ ...judged, saved: true }, edit, 200);
      },
    },
  ];
}

interface Edit {
  readonly sources: readonly SourceText[];
  readonly source: SourceText;
  readonly restored: ReturnType<typeof restoreSecrets>;
  /** The edited text with its markers. */
  readonly written: string;
  readonly secrets: readonly string[];
}

function shownFile(
  source: SourceText,
  redaction: Redaction,
): Omit<ShownText, "secrets"> & { file: string; base: string } {
  const { secrets: _kept, ...shown } = shownText(source.text, redaction);
  return { file: source.file, base: contentVersion(source), ...shown };
}

async function readEdit(
  request: AdminRequest,
  options: UiConfigOptions,
): Promise<Edit | { rejection: string; status: number }> {
  const parsed = editSchema.safeParse(tryReadJson(BODY, await request.body()));
  if (!parsed.success) return { status: 400, rejection: z.prettifyError(parsed.error) };
  const sources = options.read();
  const source = sources.find(({ file }) => file === parsed.data.file);
  if (!source) return { status: 404, rejection: "that file is not part of the configuration" };
  if (contentVersion(source) !== parsed.data.base) return { status: 409, rejection: "the file has changed; reload it" };
  const { secrets } = shownText(source.text, options.redaction);
  const written = parsed.data.text;
  return { sources, source, restored: restoreSecrets(written, secrets), written, secrets };
}

/** A message or a name in the report may quote a value of the restored text. */
function judgedResponse(judged: object, { secrets }: Edit, status: number): AdminResponse {
  const redaction = createRedaction();
  redaction.hideValues(secrets.flatMap((secret) => [secret, secret.replace(/^(["'])(.*)\1$/s, "$2")]));
  return jsonResponse(readJson(OWN_RESPONSE, redaction.text(JSON.stringify(judged))), status);
}

function judge({ sources, source, restored, written }: Edit, options: UiConfigOptions) {
  const misplaced = misplacedMarkers(written, restored, options.redaction);
  if (misplaced !== undefined && misplaced.length > 0) {
    const message = (id: number): string =>
      `the placeholder <redacted:${id}> stands where its value would be shown: it can only stand in a secret field`;
    return {
      problems: misplaced.map((id) => ({
        file: source.file,
        line: undefined,
        column: undefined,
        message: message(id),
      })),
      warnings: [],
      changes: [],
    };
  }
  const isReadable = misplaced !== undefined;
  // The message for a text that does not parse may quote any part of it.
  const text = isReadable ? restored.text : written;
  const after = options.preview(sources.map((one) => (one === source ? { file: one.file, text } : one)));
  const before: Preview = options.preview(sources);
  const shown = (line: string): Problem => {
    const problem = parseProblem(line, sources);
    return problem.file === source.file && problem.line !== undefined && isReadable
      ? { ...problem, line: restored.lineOf(problem.line) }
      : problem;
  };
  const unknown = restored.unknown.map((id) => ({
    file: source.file,
    line: undefined,
    column: undefined,
    message: `<redacted:${id}> is not a known placeholder: write the value, or a \${VARIABLE}`,
  }));
  return {
    problems: [...unknown, ...after.problems.map(shown)],
    warnings: after.warnings.map(shown),
    changes: before.dump && after.dump ? changesBetween(before.dump, after.dump) : [],
  };
}

/** Parses `file:line:column: message`. A line in another format becomes the message. */
export function parseProblem(line: string, sources: readonly SourceText[]): Problem {
  for (const { file } of sources) {
    if (!line.startsWith(`${file}:`)) continue;
    const rest = /^(\d+):(\d+): (.*)$/s.exec(line.slice(file.length + 1));
    if (rest) return { file, line: Number(rest[1]), column: Number(rest[2]), message: rest[3] ?? "" };
  }
  return { file: undefined, line: undefined, column: undefined, message: line };
}

function contentVersion({ text }: SourceText): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 16);
}
