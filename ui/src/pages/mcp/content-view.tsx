/**
 * Shows the result of a tool, prompt, or resource as text, images, or JSON.
 */
import { useEffect, useState } from "preact/hooks";
import { visible } from "../../parts/format.ts";
import { Json } from "../../parts/json.tsx";
import { Tabs } from "../../parts/tabs.tsx";

interface Part {
  readonly type?: string;
  readonly text?: string;
  readonly data?: string;
  readonly blob?: string;
  readonly mimeType?: string;
  readonly uri?: string;
  readonly resource?: Part;
}

/** Browsers render these image types without running code. */
const DRAWN = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

export function ContentView({ result }: { result: unknown }) {
  const [view, setView] = useState<"content" | "json">("content");
  const parts = partsOf(result);
  const structured = (result as { structuredContent?: unknown }).structuredContent;
  return (
    <div class="stack">
      <Tabs<"content" | "json">
        label="Views of the result"
        tabs={[
          { name: "content", title: "Result" },
          { name: "json", title: "JSON" },
        ]}
        selected={view}
        onSelect={setView}
      />
      {view === "json" || (parts.length === 0 && structured === undefined) ? <Json value={result} open={4} /> : null}
      {view === "content" ? (
        <>
          {parts.map((part, i) => (
            <PartView key={i} part={part} />
          ))}
          {structured === undefined ? null : <Json value={structured} open={4} />}
        </>
      ) : null}
    </div>
  );
}

function PartView({ part }: { part: Part }) {
  const inner = part.resource ?? part;
  const bytes = inner.data ?? inner.blob;
  if (bytes !== undefined && DRAWN.has(inner.mimeType ?? ""))
    return <Picture base64={bytes} type={inner.mimeType ?? ""} />;
  if (inner.text !== undefined) return <TextPart text={inner.text} />;
  return <Json value={part} />;
}

function TextPart({ text }: { text: string }) {
  const json = parse(text);
  if (json !== undefined) return <Json value={json} open={4} />;
  return <pre class="code wrap">{text.split("\n").map(visible).join("\n")}</pre>;
}

function Picture({ base64, type }: { base64: string; type: string }) {
  const [url, setUrl] = useState<string | undefined>(undefined);
  useEffect(() => {
    const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
    const made = URL.createObjectURL(new Blob([bytes], { type }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [base64, type]);
  return url === undefined ? null : <img src={url} alt="from the tool result" class="picture" />;
}

function partsOf(result: unknown): Part[] {
  const { content, contents, messages } = result as {
    content?: Part[];
    contents?: Part[];
    messages?: { content: Part }[];
  };
  if (Array.isArray(content)) return content;
  if (Array.isArray(contents)) return contents;
  return Array.isArray(messages) ? messages.flatMap((message) => message.content) : [];
}

function parse(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}
