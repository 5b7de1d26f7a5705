/**
 * Draws the logo and the icons as lines on a 16-pixel grid. They are decorative, because a label is next to each.
 */

const MARK = "M1.5 4.5c4 0 4.5 3.5 8 3.5M1.5 11.5c4 0 4.5-3.5 8-3.5M9.5 8h5";

const PATHS: Readonly<Record<string, string>> = {
  overview: "M2 4h3.5c3 0 2 8 5 8H14M2 12h3.5c1.2 0 1.7-1.2 2-2.7M14 4h-3.5c-1.2 0-1.7 1.2-2 2.7",
  requests: "M2 4h12M2 8h8M2 12h10",
  mcp: "M6 2v3M10 2v3M4 5h8v3a4 4 0 0 1-8 0zM8 12v2.5",
  llm: "M2.5 3h11v8H8l-3 2.5V11H2.5zM5.5 6h5M5.5 8.3h3",
  keys: "M5.5 6.5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM7.7 7.3L13.5 1.5M11 4l2 2",
  limits: "M2.5 12a6 6 0 1 1 11 0M8 11l3-4.5",
  policies: "M8 1.8l5 1.9v3.8c0 3.2-2.2 5.4-5 6.7-2.8-1.3-5-3.5-5-6.7V3.7zM5.8 8l1.6 1.6 3-3.2",
  access: "M8 2.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM3 14c0-3 2-4.5 5-4.5M9.5 12.5l1.7 1.7 3-3.4",
  cel: "M5 3C3 3 4.5 8 2.5 8 4.5 8 3 13 5 13M11 3c2 0 .5 5 2.5 5-2 0-.5 5-2.5 5M6.5 6l3 4M9.5 6l-3 4",
  config: "M3 2h6l4 4v8H3zM9 2v4h4M5.5 9h5M5.5 11.5h3",
  runtime: "M1.5 8.5h3l2-5 3 9 2-4h3",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.3 10.3L14 14",
  leave: "M6 2H3v12h3M10.5 5l3 3-3 3M13.5 8H6",
  help: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM6.2 6.3c0-2.4 3.6-2.4 3.6 0C9.8 7.8 8 7.7 8 9.2M8 11.3v.1",
  theme: "M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12",
};

export function Icon({ name }: { name: string }) {
  return (
    <svg class="icon" width="16" height="16" viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[name] ?? ""} />
    </svg>
  );
}

export function Mark() {
  return (
    <svg class="mark" width="22" height="22" viewBox="0 0 16 16" aria-hidden="true">
      <path d={MARK} />
      <circle cx="9.5" cy="8" r="2.1" />
    </svg>
  );
}
