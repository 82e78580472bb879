-- Fenced reads of one key, over HTTP. Argument: a file whose first line is the key, percent-encoded.
function init(arguments)
  local token = os.getenv("PALISADE_BENCH_TOKEN")
  if token then wrk.headers["Authorization"] = "Bearer " .. token end
  wrk.method, wrk.path = "GET", "/v1/fenced/" .. io.lines(arguments[1])()
  only = wrk.format()
end

function request()
  return only
end

dofile(debug.getinfo(1, "S").source:match("@(.*/)") .. "report.lua")
