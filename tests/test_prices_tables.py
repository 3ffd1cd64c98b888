"""Price lists of others, which price serves, and how old it is."""

from __future__ import annotations

import os
from datetime import date

import pytest

from dataeff.errors import FormatError, InputError, PlanError
from dataeff.prices import Price, age_days, age_words, find_price, price_of, stated, table
from dataeff.prices.skypilot import read_prices

CATALOGUE = """InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice
cpu-only,,0,4,16,0.1,north,,
one-h,H100,1,16,200,3.00,north,"{'Gpus': [{'Name': 'H100', 'Count': 1}]}",1.25
eight-h,H100,8,128,1600,23.20,south,"{'Gpus': [{'Name': 'H100', 'Count': 8}]}",
one-a,A100,1,16,200,1.50,north,,
one-b,A100-80GB,1.0,16,200,2.50,north,,
only-spot,L4,1,8,32,,north,,0.20
"""
ON_PREMISE = "Region,Zone,PricePerVCPU,PricePerMemoryGB,AcceleratorName,PricePerAccelerator\n"


@pytest.fixture
def catalogue(tmp_path):
    path = tmp_path / "vms.csv"
    path.write_text(CATALOGUE)
    os.utime(path, (1_788_000_000, 1_788_000_000))
    return path


def test_a_catalogue_prices_one_accelerator_of_an_instance_and_dates_by_the_file(catalogue):
    found = read_prices(catalogue)
    assert [(price.accelerator, price.usd_per_hour, price.kind) for price in found] == [
        ("H100", 3.0, "on_demand"),
        ("H100", 1.25, "spot"),
        ("H100", 2.9, "on_demand"),
        ("A100", 1.5, "on_demand"),
        ("A100-80GB", 2.5, "on_demand"),
        ("L4", 0.2, "spot"),
    ]
    assert {price.as_of for price in found} == {"2026-08-29"}
    assert found[2].source == "eight-h in south, by vms.csv"
    assert read_prices(catalogue, as_of="2026-01")[0].as_of == "2026-01"


def test_the_cheapest_row_serves_and_spot_only_where_it_is_asked_for(catalogue):
    rows = read_prices(catalogue)
    assert price_of("h100", table=rows).usd_per_hour == 2.9
    assert price_of("NVIDIA H100 80GB HBM3", kind="spot", table=rows).usd_per_hour == 1.25
    assert find_price("L4", table=rows) is None
    with pytest.raises(PlanError, match="no spot price of 'A100' is known; there is"):
        price_of("A100", kind="spot", table=rows)


def test_the_longer_name_that_a_device_bears_is_its_accelerator(catalogue):
    rows = read_prices(catalogue)
    assert price_of("NVIDIA A100-SXM4-80GB", table=rows).accelerator == "A100-80GB"
    assert price_of("NVIDIA A100-SXM4-40GB", table=rows).accelerator == "A100"
    assert price_of("A100", table=rows).accelerator == "A100"


def test_a_name_that_is_not_listed_is_answered_with_the_nearest(catalogue):
    with pytest.raises(PlanError, match="no price of 'H101' is known; there is H100") as caught:
        price_of("H101", table=read_prices(catalogue))
    assert "--price" in str(caught.value)
    with pytest.raises(PlanError, match="there is none at all"):
        price_of("H100", table=())


def test_prices_on_premise_hold_for_any_accelerator_where_a_field_is_empty(tmp_path):
    path = tmp_path / "pricing.csv"
    path.write_text(ON_PREMISE + ",,0.0,0.0,,1.10\nlab,,0.0,0.0,H100,2.20\nlab,rack 3,0,0,B200,0.0\n")
    rows = read_prices(path)
    assert [(price.accelerator, price.kind) for price in rows] == [("", "on_premise"), ("H100", "on_premise")]
    assert price_of("H100", table=rows).usd_per_hour == 2.2
    assert price_of("NVIDIA L40S", table=rows).usd_per_hour == 1.1
    assert find_price("", table=rows) == rows[0]
    assert find_price("L40S", kind="on_demand", table=rows) is None
    assert str(rows[0]).startswith("$1.10 an hour, on premise (any region, by pricing.csv, as of ")


def test_lists_that_cannot_be_read_say_what_they_must_be(tmp_path):
    path = tmp_path / "list.csv"
    with pytest.raises(InputError, match="there is no price list"):
        read_prices(path)
    path.write_text("Name,Cost\nH100,3\n")
    with pytest.raises(FormatError, match=r"the columns Name, Cost; it must have InstanceType, .*\(prices on prem"):
        read_prices(path)
    path.write_text(CATALOGUE.replace("23.20", "cheap"))
    with pytest.raises(FormatError, match="line 4: 'cheap' is no price or count"):
        read_prices(path)
    path.write_text(CATALOGUE.replace("23.20", "-1"))
    with pytest.raises(FormatError, match="line 4: '-1' is no price"):
        read_prices(path)
    path.write_text(ON_PREMISE + ",,0.0,0.0,,0.0\n")
    with pytest.raises(InputError, match="prices no accelerator"):
        read_prices(path)
    path.write_text("")
    with pytest.raises(FormatError, match="has the columns none"):
        read_prices(path)


def priced(as_of: str) -> Price:
    return Price(accelerator="H100", usd_per_hour=1.0, source="somebody", as_of=as_of)


@pytest.mark.parametrize(
    ("as_of", "days"),
    [("2026", 334), ("2026-11", 30), ("2026-09-02", 90), ("2026-12-01", 0), ("2027-01-01", 0), ("", None)],
)
def test_the_age_of_a_price_counts_from_the_first_day_that_its_date_names(as_of, days):
    assert age_days(priced(as_of), date(2026, 12, 1)) == days


def test_a_price_is_called_old_after_ninety_days_and_no_sooner():
    today = date(2026, 12, 1)
    assert age_words(priced("2026-09-02"), today) == ""
    assert age_words(priced("2026-09-01"), today).startswith("the price is 91 days old (2026-09-01): look it up again")
    assert age_words(priced("2026"), today).startswith("the price is up to 334 days old (2026)")
    assert age_words(stated(2.0), today) == ""
    with pytest.raises(PlanError, match="as of 'last summer'; it must be a year, a month or a day"):
        age_days(priced("last summer"), today)


def test_every_price_of_our_own_table_can_be_dated():
    assert all(age_days(price, date(2026, 12, 1)) is not None for price in table())
    assert {price.kind for price in table()} == {"on_demand"}
